// id: X-31
// name: Rare calls of the kernel
// group: kernel
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"
#include <fcntl.h>

int main(void)
{
    char space[64] = {0};
#ifdef SYS_modify_ldt
    FILTERED("modify_ldt", syscall(SYS_modify_ldt, 0, space, sizeof space));
    FILTERED("modify_ldt write", syscall(SYS_modify_ldt, 1, space, 1));
#endif
    FILTERED("memfd_secret", syscall(447, 0));
    FILTERED("kcmp", syscall(SYS_kcmp, getpid(), getpid(), 1, 0, 0));
    FILTERED("fanotify_init", syscall(SYS_fanotify_init, 0x200, O_RDONLY));
    FILTERED("fanotify_mark", syscall(SYS_fanotify_mark, -1, 0, 0, -1, 0));
    FILTERED("lookup_dcookie", syscall(SYS_lookup_dcookie, 1L, space, sizeof space));
#ifdef SYS_nfsservctl
    FILTERED("nfsservctl", syscall(SYS_nfsservctl, 0, 0, 0));
#endif
#ifdef SYS_uselib
    FILTERED("uselib", syscall(SYS_uselib, "/nonexistent"));
#endif
#ifdef SYS__sysctl
    FILTERED("_sysctl", syscall(SYS__sysctl, space));
#endif
#ifdef SYS_create_module
    FILTERED("create_module", syscall(SYS_create_module, 0, 0));
    FILTERED("get_kernel_syms", syscall(SYS_get_kernel_syms, 0));
    FILTERED("query_module", syscall(SYS_query_module, 0, 0, 0, 0, 0));
#endif
    FILTERED("sethostname", syscall(SYS_sethostname, space, 0));
    FILTERED("setdomainname", syscall(SYS_setdomainname, space, 0));
    FILTERED("process_mrelease", syscall(448, -1, 0));
    FILTERED("a number of the future", syscall(1000));
    FILTERED("a number far away", syscall(0x3fffffff));
    return done();
}
