#!/bin/sh
# HealthCheckProgram of slurm.conf: checks the node now and then, and tells the bus. It drains only by policy.
#
# Slurm gives it nothing but SLURMD_NODENAME, ends it after 60 s, and ignores its exit status. Where slurm.conf is not
# where Slurm looks for it by itself, name it in the settings of heeler-health.

PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin:/opt/slurm/bin:/opt/heeler/bin
export PATH
health=${HEELER_HEALTH:-heeler-health}
deadline_s=${HEELER_DEADLINE_S:-50}
exec </dev/null >/dev/null 2>&1

"$health" run --mode periodic --deadline "$deadline_s" &
child=$!
# Not even a process that can't be killed is waited for: a signal ends the wait.
trap 'kill -KILL "$child"; exit 0' ALRM HUP INT TERM
{
    trap 'kill "$slept"; exit' TERM
    sleep "$deadline_s" &
    slept=$!
    wait "$slept"
    kill -ALRM $$
} &
timer=$!
wait "$child"
trap "" ALRM
kill -TERM "$timer"
exit 0
