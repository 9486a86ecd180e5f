#!/usr/bin/env bash
# Slurm: in a heterogeneous step the n-th entry of SLURM_STEP_TASKS_PER_NODE is not that of node n.
#
# One would guess: SLURM_NODEID is the place of this machine in SLURM_STEP_NODELIST and in
# SLURM_STEP_TASKS_PER_NODE, and task 0 runs on the first machine of the list. So scripts take the
# first host as the address of rank 0 (`scontrol show hostnames | head -n 1`), and the entry of
# SLURM_NODEID as the number of local tasks.
#
# What happens: that holds for ordinary steps. In a heterogeneous one node ids follow the command
# line, and both lists stay sorted by the name of the machine. Task 0 is then on another machine
# than the first of the list, and the entry of a node id is that of another machine.
#
# Versions: slurm-wlm 22.05.8 (Debian 12). Needs root and apt-get. Date: 2026-11-29.
# Source: the environment of the tasks; srun(1) says that SLURM_NODEID is "the relative node ID".
#
# Output seen (srun -N1 -n1 -w n3 ... : -N1 -n2 -w n1 ...):
#   n1 task 1 of 3: node id 1, list n[1,3], tasks per node 2,1
#   n1 task 2 of 3: node id 1, list n[1,3], tasks per node 2,1
#   n3 task 0 of 3: node id 0, list n[1,3], tasks per node 2,1
set -euo pipefail

folder=$(mktemp -d)
finish() {
  for pid in "$folder"/*.pid; do [ -e "$pid" ] && kill "$(cat "$pid")" 2>/dev/null; done
  sleep 1
  rm -rf "$folder"
}
trap finish EXIT
cd "$folder"
version=22.05.8-4+deb12u3
apt-get download -qq -o APT::Sandbox::User=root slurmctld=$version slurmd=$version \
  slurm-client=$version slurm-wlm-basic-plugins=$version munge libmunge2
for package in *.deb; do dpkg -x "$package" root; done
libraries=$folder/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$libraries:$libraries/slurm-wlm
export PATH=$folder/root/usr/bin:$folder/root/usr/sbin:$PATH SLURM_CONF=$folder/slurm.conf

head -c 128 /dev/urandom >key && chmod 400 key
munged --force --key-file="$folder/key" --socket="$folder/socket" --pid-file="$folder/munged.pid" \
  --log-file="$folder/munged.log" --seed-file="$folder/seed"
host=$(hostname -s)
cat >slurm.conf <<CONF
ClusterName=finding
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/socket
PluginDir=$libraries/slurm-wlm
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
SlurmctldPort=27817
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SelectType=select/cons_tres
NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=27001 CPUs=2
NodeName=n3 NodeHostname=$host NodeAddr=127.0.0.1 Port=27003 CPUs=2
PartitionName=all Nodes=n1,n3 Default=YES State=UP
CONF
mkdir state
slurmctld-wlm
for node in n1 n3; do
  slurmd-wlm -N $node -d "$folder/root/usr/sbin/slurmstepd-wlm" ||
    { cat slurmd-$node.log && exit 2; }
done
for _ in $(seq 100); do
  [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && break
  sleep 0.2
done

cat >show.sh <<'SHOW'
echo "$SLURMD_NODENAME task $SLURM_PROCID of $SLURM_NTASKS: node id $SLURM_NODEID," \
  "list $SLURM_STEP_NODELIST, tasks per node $SLURM_STEP_TASKS_PER_NODE"
SHOW
timeout 60 srun -Q -N1 -n1 -w n3 sh show.sh : -N1 -n2 -w n1 sh show.sh | sort | tee seen
grep -q '^n3 task 0 of 3: node id 0, list n\[1,3\], tasks per node 2,1$' seen
[ "$(grep -c '^n1 task [12] of 3: node id 1, list n\[1,3\], tasks per node 2,1$' seen)" = 2 ]
