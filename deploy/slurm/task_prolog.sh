#!/bin/sh
# TaskProlog of slurm.conf, if it is wanted at all: tells a job in its own output what is wrong with its GPUs.
#
# It runs as the job's user before each task. Slurm reads its output: only lines that begin with "print " go through, so
# that no variable of the job is ever changed. It never fails a task.

PATH=/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/sbin:/usr/local/bin:/opt/heeler/bin
export PATH
health=${HEELER_HEALTH:-heeler-health}
deadline_s=${HEELER_DEADLINE_S:-5}
exec 2>/dev/null </dev/null
said=$(mktemp) || exit 0

"$health" run --mode task_prolog --deadline "$deadline_s" >"$said" &
child=$!
# Not even a process that can't be killed is waited for: a signal ends the wait.
trap 'kill -KILL "$child"; rm -f "$said"; exit 0' ALRM HUP INT TERM
{
    trap 'kill "$slept"; exit' TERM
    sleep "$deadline_s" &
    slept=$!
    wait "$slept"
    kill -ALRM $$
} >/dev/null &
timer=$!
wait "$child"
trap "" ALRM
kill -TERM "$timer"
grep '^print ' "$said"
rm -f "$said"
exit 0
