// id: X-69
// name: Kernel code behind options, flags and requests of calls that are allowed
// group: kernel
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

/* Descriptors are bad on purpose: the filter must answer before the kernel looks at them. */
int main(void)
{
    char byte = 0;
    struct iovec io = {&byte, 1};
    struct mmsghdr one = {.msg_hdr = {.msg_iov = &io, .msg_iovlen = 1}};
    REFUSED("TCP_ULP", setsockopt(-1, IPPROTO_TCP, 31, "tls", 4), ENOENT);
    REFUSED("UDP_ENCAP", setsockopt(-1, IPPROTO_UDP, 100, &byte, 1), ENOPROTOOPT);
    REFUSED("send MSG_OOB", send(-1, &byte, 1, MSG_OOB), EOPNOTSUPP);
    REFUSED("send MSG_OOB and more bits", syscall(SYS_sendto, -1, &byte, 1, 0x100000000L | MSG_OOB | MSG_DONTWAIT, 0, 0), EOPNOTSUPP);
    REFUSED("sendmsg MSG_OOB", sendmsg(-1, &one.msg_hdr, MSG_OOB), EOPNOTSUPP);
    REFUSED("sendmmsg MSG_OOB", sendmmsg(-1, &one, 1, MSG_OOB), EOPNOTSUPP);
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0) {
        REFUSED("MSG_OOB on a unix socket", send(pair[0], "x", 1, MSG_OOB), EOPNOTSUPP);
        if (send(pair[0], "x", 1, 0) != 1 || recv(pair[1], &byte, 1, 0) != 1)
            breach("a plain byte", "did not go through");
    }
    REFUSED("MADV_MERGEABLE", madvise(NULL, 0, 12), EINVAL);
    REFUSED("PR_SET_MEMORY_MERGE", prctl(67, 1, 0, 0, 0), EPERM);
    const struct {
        const char *name;
        unsigned long request;
    } requests[] = {{"FICLONE", 0x40049409}, {"FICLONERANGE", 0x4020940d}, {"FIDEDUPERANGE", 0xc0189436},
        {"BTRFS_IOC_TREE_SEARCH_V2", 0xc0709411}, {"FS_IOC_FIEMAP", 0xc020660b}, {"FS_IOC_GETFLAGS", 0x80086601},
        {"FS_IOC_ENABLE_VERITY", 0x40806685}, {"FS_IOC_SET_ENCRYPTION_POLICY", 0x800c6613}, {"FS_IOC_FSGETXATTR", 0x801c581f},
        {"FIFREEZE", 0xc0045877}, {"FITRIM", 0xc0185879}, {"FITRIM with more bits", 0x1c0185879},
        {"FS_IOC_GETFSUUID", 0x80111500}, {"FS_IOC_GETFSSYSFSPATH", 0x80811501}, {"F2FS_IOC_GET_FEATURES", 0x8004f50c},
        {"F2FS_IOC_START_ATOMIC_WRITE", 0xf501}};
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++)
        REFUSED(requests[i].name, syscall(SYS_ioctl, -1L, requests[i].request, 0L), ENOTTY);
    return done();
}
