"""Tests of PyTorch that pass with gloo and are not for ringo, each with its reason."""

SKIPS = {
    "test_monitored_barrier_gloo": "PyTorch refuses monitored_barrier for every backend but gloo, by its name",
    "test_monitored_barrier_gloo_rank_0_timeout": "likewise",
    "test_monitored_barrier_gloo_subgroup": "likewise",
    "test_monitored_barrier_failure_order": "likewise",
    "test_monitored_barrier_wait_all_ranks": "likewise",
    "test_monitored_barrier_allreduce_hang": "likewise",
    "test_monitored_barrier_allreduce_hang_wait_all_ranks": "likewise",
}
