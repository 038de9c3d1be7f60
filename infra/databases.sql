-- Three roles with a database each, for psql of the superuser; run again, it sets the passwords.
-- Passwords come from the environment: PREFECT_DB_PASSWORD, MLFLOW_DB_PASSWORD, HACPO_DB_PASSWORD.
\set ON_ERROR_STOP on
\getenv prefect PREFECT_DB_PASSWORD
\getenv mlflow MLFLOW_DB_PASSWORD
\getenv hacpo HACPO_DB_PASSWORD
-- A statement that fails is not to be told, password and all.
SET log_min_error_statement = panic;
SET log_statement = none;
SET password_encryption = 'scram-sha-256';

CREATE TEMP TABLE wanted (name text, secret text);
INSERT INTO wanted VALUES ('prefect', :'prefect'), ('mlflow', :'mlflow'), ('hacpo', :'hacpo');
SELECT format(
  CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = name)
    THEN 'ALTER ROLE %I PASSWORD %L' ELSE 'CREATE ROLE %I LOGIN PASSWORD %L' END, name, secret)
FROM wanted \gexec
SELECT format('CREATE DATABASE %I OWNER %I', name, name) FROM wanted
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = name) \gexec
-- Nobody enters another's database.
SELECT format('REVOKE ALL ON DATABASE %I FROM PUBLIC', name) FROM wanted \gexec
