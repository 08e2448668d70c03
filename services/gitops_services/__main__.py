"""`python -m gitops_services`: receiver, API and console in one process."""

from gitops_services.serve import main

if __name__ == "__main__":
    raise SystemExit(main())
