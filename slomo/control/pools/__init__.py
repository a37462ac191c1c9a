"""RMD's policies: cache pools for guaranteed, burstable and best-effort workloads (OSS EU'18)."""
