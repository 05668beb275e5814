// id: X-32
// name: Arguments with high bits
// group: kernel
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/personality.h>

#define HIGH (1UL << 32)

/* The kernel looks at the low 32 bits of these; a filter that compares 64 is blind. */
int main(void)
{
    FILTERED("TIOCSTI", syscall(SYS_ioctl, 0, TIOCSTI | HIGH, "x"));
    FILTERED("TIOCLINUX", syscall(SYS_ioctl, 0, TIOCLINUX | HIGH, "\3"));
    FILTERED("TIOCSCTTY", syscall(SYS_ioctl, 0, TIOCSCTTY | HIGH, 0));
    FILTERED("ADDR_NO_RANDOMIZE", syscall(SYS_personality, (long)ADDR_NO_RANDOMIZE));
    FILTERED("READ_IMPLIES_EXEC", syscall(SYS_personality, (long)READ_IMPLIES_EXEC));
    FILTERED("MMAP_PAGE_ZERO", syscall(SYS_personality, (long)MMAP_PAGE_ZERO));
    FILTERED("ADDR_NO_RANDOMIZE, high", syscall(SYS_personality, ADDR_NO_RANDOMIZE | HIGH));
    FILTERED("READ_IMPLIES_EXEC, high", syscall(SYS_personality, READ_IMPLIES_EXEC | HIGH));
    syscall(SYS_personality, 0);
    return done();
}
