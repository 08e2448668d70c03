"""For Celery's own commands: `celery -A gitops_workers.celery_app inspect ping`."""

from gitops_reconciler.settings import load_settings
from gitops_workers.app import create_app

app = create_app(load_settings())
