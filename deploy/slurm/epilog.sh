#!/bin/sh
# Epilog of slurm.conf: checks the node after a job, and ends what the job left behind where the policy says so.
#
# Exit status 1, upon which Slurm drains the node, only where heeler-health says so with a status that nothing else has.
# A missing program, a crash, a fault in its settings, or no answer in time is 0. The deadline must be well below
# PrologEpilogTimeout, at which Slurm itself drains the node.

PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin:/opt/slurm/bin:/opt/heeler/bin
export PATH
health=${HEELER_HEALTH:-heeler-health}
deadline_s=${HEELER_DEADLINE_S:-90}
exec </dev/null >/dev/null 2>&1

"$health" run --mode epilog --fail-status 99 --deadline "$deadline_s" &
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
status=$?
trap "" ALRM
kill -TERM "$timer"
[ "$status" -eq 99 ] && exit 1
exit 0
