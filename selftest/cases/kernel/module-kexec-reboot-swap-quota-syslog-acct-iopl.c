// id: O-44
// name: Module, kexec, reboot, swap, quota, syslog, acct, iopl
// group: kernel
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"

/* Every call has arguments that the kernel itself would refuse or that change nothing. */
int main(void)
{
    void *bad = (void *)1;
    FILTERED("init_module", syscall(SYS_init_module, bad, 0, bad));
    FILTERED("finit_module", syscall(SYS_finit_module, -1, bad, 0));
    FILTERED("delete_module", syscall(SYS_delete_module, bad, 0));
#ifdef SYS_kexec_load
    FILTERED("kexec_load", syscall(SYS_kexec_load, 0, 99, bad, ~0UL));
#endif
#ifdef SYS_kexec_file_load
    FILTERED("kexec_file_load", syscall(SYS_kexec_file_load, -1, -1, 0, bad, ~0UL));
#endif
    FILTERED("reboot", syscall(SYS_reboot, 0, 0, 0, 0));
    FILTERED("swapon", syscall(SYS_swapon, bad, -1));
    FILTERED("swapoff", syscall(SYS_swapoff, bad));
    FILTERED("quotactl", syscall(SYS_quotactl, 99, bad, 0, 0));
    FILTERED("quotactl_fd", syscall(443, -1, 99, 0, 0));
    FILTERED("syslog size", syscall(SYS_syslog, 10, NULL, 0));
    FILTERED("syslog read", syscall(SYS_syslog, 3, bad, 1));
    FILTERED("acct", syscall(SYS_acct, bad));
#ifdef SYS_iopl
    FILTERED("iopl", syscall(SYS_iopl, 0));
    FILTERED("iopl bad", syscall(SYS_iopl, 99));
    FILTERED("ioperm", syscall(SYS_ioperm, 0, 0, 0));
    FILTERED("ioperm port", syscall(SYS_ioperm, 0x80, 1, 0));
#endif
    return done();
}
