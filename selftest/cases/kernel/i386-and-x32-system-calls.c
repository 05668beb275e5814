// id: X-30
// name: i386 and x32 system calls
// group: kernel
// priority: 1
// expect: ok
// control: seccomp
// files: probe.h
#include "probe.h"
#include <signal.h>
#include <sys/wait.h>

#ifdef __x86_64__
static long int80(long number, long arg)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(arg) : "memory", "r8", "r9", "r10",
        "r11");
    return result;
}

static long x32(long number)
{
    return syscall(0x40000000 | number);
}

static long getpid_by_int80(void) { return int80(20, 0); }
static long unshare_by_int80(void) { return int80(310, 0); } /* unshare(0) changes nothing */
static long iopl_by_int80(void) { return int80(110, 0); }    /* iopl(0) changes nothing */
static long getpid_by_x32(void) { return x32(39); }
static long ptrace_by_x32(void) { return x32(521); }

/* Killed by the filter, or ENOSYS and EPERM by it; anything else means another table of numbers. */
static void in_child(const char *what, long (*call)(void))
{
    pid_t child = fork();
    if (child == 0) {
        errno = 0;
        long result = call();
        int error = result == -1 ? errno : result < 0 ? (int)-result : 0;
        _exit(error == ENOSYS || error == EPERM ? 1 : 2);
    }
    int status;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
        printf("blocked: %s SIGSYS\n", what);
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) /* no 32-bit entry at all */
        printf("blocked: %s SIGSEGV\n", what);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == 1)
        printf("blocked: %s ENOSYS or EPERM\n", what);
    else
        breach(what, "got through");
    fflush(stdout);
}
#endif

int main(void)
{
#ifdef __x86_64__
    in_child("getpid by int 0x80", getpid_by_int80);
    in_child("unshare by int 0x80", unshare_by_int80);
    in_child("iopl by int 0x80", iopl_by_int80);
    in_child("getpid by x32", getpid_by_x32);
    in_child("ptrace by x32", ptrace_by_x32);
#endif
    return done();
}
