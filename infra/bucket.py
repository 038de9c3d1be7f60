"""Makes the bucket of MLflow's artifacts, if there is none.

Environment: MLFLOW_S3_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, S3_BUCKET.
"""

import os
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError


def make_bucket(name: str) -> None:
    """Raises what boto3 raises, unless the bucket is there already; waits a minute for a server."""
    patient = Config(retries={"mode": "standard", "max_attempts": 12})
    endpoint = os.environ.get("MLFLOW_S3_ENDPOINT_URL")
    client = boto3.client("s3", endpoint_url=endpoint, config=patient)
    try:
        client.head_bucket(Bucket=name)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] != 404:
            raise
        client.create_bucket(Bucket=name)


if __name__ == "__main__":
    try:
        make_bucket(os.environ["S3_BUCKET"])
    except (BotoCoreError, ClientError, KeyError) as error:
        sys.exit(f"the bucket cannot be made: {error}")
