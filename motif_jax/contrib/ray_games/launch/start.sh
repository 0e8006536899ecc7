# Sourced by the launchers of Ray: what all hosts of a cluster of ours have in common.
#
# Only those that have the cluster's key may use it; there is no dashboard, and nothing is reported to anyone. Answers
# below a megabyte do not go through Ray's object store, which costs CPU time (../cluster.py).
export RAY_USAGE_STATS_ENABLED=0 RAY_max_direct_call_object_size=1048576
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=${RAY_AUTH_TOKEN:-$(python3 -c 'import secrets; print(secrets.token_hex(32))')}
