# id: O-15
# name: Kernel knobs through /proc/sys and /sys
# group: filesystem
# priority: 1
# expect: ok
# control: pidns_proc,landlock
# Values are the ones in force or harmless; what counts is whether the file opens for writing.
for knob in \
    /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/kernel/hotplug \
    /proc/sysrq-trigger /proc/sys/vm/overcommit_memory /proc/sys/vm/drop_caches \
    /proc/sys/user/max_user_namespaces /proc/sys/fs/binfmt_misc/register \
    /proc/sys/net/ipv4/ip_forward /proc/irq/default_smp_affinity /proc/timer_list \
    /sys/kernel/uevent_helper /sys/power/state /sys/fs/cgroup/cgroup.procs \
    /sys/fs/cgroup/release_agent /sys/kernel/mm/transparent_hugepage/enabled \
    /proc/1/oom_score_adj /proc/self/coredump_filter /proc/self/timerslack_ns; do
    if (: >> "$knob") 2>/dev/null; then
        echo "BREACH: $knob opened for writing"
    else
        echo "blocked: $knob"
    fi
done
for value in -1000 -1 1000; do
    if (echo "$value" > /proc/self/oom_score_adj) 2>/dev/null; then
        echo "BREACH: oom_score_adj $value"
    else
        echo "blocked: oom_score_adj $value"
    fi
done
echo done
