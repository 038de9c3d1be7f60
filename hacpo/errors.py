"""Errors that a person can act on; the CLI prints them as one line and exits with 2."""


class HacpoError(Exception):
    """Base of every error that is somebody's to fix, told in one line: what, where, what to do."""


class ConfigError(HacpoError, ValueError):
    """A configuration, override or grid that cannot be run as written."""


class DataError(HacpoError, ValueError):
    """A problem file, model folder or tokenizer that cannot be used."""


class RegistryError(HacpoError, RuntimeError):
    """The registry cannot be opened, is too new, or refused a write."""


class RegistryUnavailableError(RegistryError):
    """The registry's database does not answer now; the same may work later."""


class LeaseLostError(RegistryError):
    """This process no longer holds the cell that it works on; it must stop writing."""


class ServiceError(HacpoError, ConnectionError):
    """MLflow or Prefect does not answer where the configuration says it is."""


class EngineError(HacpoError, RuntimeError):
    """A sampling engine's process ended, hangs, or refused to work."""


class NotFiniteError(HacpoError, ArithmeticError):
    """Training has come to numbers that are not finite."""


class VerifierError(HacpoError, RuntimeError):
    """The processes that grade responses cannot be kept alive."""


class StorageError(HacpoError, OSError):
    """A folder is not writable, a disk is full, or a stored file is damaged."""
