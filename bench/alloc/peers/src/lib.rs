//! Nothing: this package exists for its lock file, which pins the peers' sources (see `../peers.py`).
