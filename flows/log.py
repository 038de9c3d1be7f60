"""What `prefect.get_run_logger` gives."""

import logging

Log = logging.Logger | logging.LoggerAdapter[logging.Logger]
