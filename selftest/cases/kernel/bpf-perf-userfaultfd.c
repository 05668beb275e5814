// id: O-42
// name: bpf, perf, userfaultfd
// group: kernel
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"
#include <linux/bpf.h>
#include <linux/perf_event.h>

int main(void)
{
    union bpf_attr map = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    FILTERED("bpf map", syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map));
    FILTERED("bpf bad", syscall(SYS_bpf, BPF_PROG_LOAD, 1, sizeof map));

    struct perf_event_attr event = {.size = sizeof event, .exclude_kernel = 1, .exclude_hv = 1};
    event.type = PERF_TYPE_HARDWARE;
    event.config = PERF_COUNT_HW_CPU_CYCLES;
    FILTERED("perf cycles", syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));
    event.type = PERF_TYPE_SOFTWARE;
    event.config = PERF_COUNT_SW_TASK_CLOCK;
    FILTERED("perf task clock", syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));

    FILTERED("userfaultfd", syscall(SYS_userfaultfd, 0));
    FILTERED("userfaultfd user mode", syscall(SYS_userfaultfd, 1));
    return done();
}
