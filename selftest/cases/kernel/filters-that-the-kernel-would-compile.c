// id: X-62
// name: Filters that the kernel would compile
// group: kernel
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
// Native code of filters comes from one pool of the host; freeing thousands at once has deadlocked
// a kernel for good. One tiny filter is enough to see whether the call is refused: never more.
#include "probe.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>

int main(void)
{
    struct sock_filter code[] = {{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
    struct sock_fprog program = {.len = 1, .filter = code};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    FILTERED("socket filter",
             setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
    FILTERED("socket filter, high bits",
             syscall(SYS_setsockopt, fd, SOL_SOCKET | 1l << 32, SO_ATTACH_FILTER | 1l << 32,
                     &program, sizeof program));
    FILTERED("seccomp filter", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
    FILTERED("prctl filter", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
    int inet = socket(AF_INET, SOCK_DGRAM, 0);
    FILTERED("reuseport filter", setsockopt(inet, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program,
                                            sizeof program));
    FILTERED("ebpf on a socket", setsockopt(fd, SOL_SOCKET, SO_ATTACH_BPF, &fd, sizeof fd));
    return done();
}
