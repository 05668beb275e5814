// id: X-28
// name: Core dumps
// group: process
// priority: 1
// expect: ok
// control: rlimits,seccomp
// files: probe.h
#include "probe.h"
#include <dirent.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

int main(void)
{
    struct rlimit zero = {0, 0}, one = {1, 1}, some = {1 << 20, 1 << 20};
    /* 0 is a raise, too: the kernel then feeds a core_pattern that is a pipe. */
    FILTERED("RLIMIT_CORE 0", setrlimit(RLIMIT_CORE, &zero));
    FILTERED("RLIMIT_CORE 1 MiB", setrlimit(RLIMIT_CORE, &some));
    FILTERED("prlimit64 RLIMIT_CORE", prlimit(0, RLIMIT_CORE, &one, NULL));
    FILTERED("RLIMIT_CORE with high bits", syscall(SYS_prlimit64, 0, RLIMIT_CORE | 1UL << 32, &zero, 0));
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    if (fork() == 0)
        abort();
    int status;
    wait(&status);
    if (WCOREDUMP(status))
        breach("core", "dumped");
    DIR *dir = opendir(".");
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (strncmp(e->d_name, "core", 4) == 0)
            breach("core file", e->d_name);
    return done();
}
