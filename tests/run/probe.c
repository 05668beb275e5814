/* SPDX-License-Identifier: Apache-2.0 */

/* Prints, from inside a box, how it is confined; two boxes with the same barriers print the same
 * text. Then waits for the end of stdin, so that the test can look at it from outside. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

static void print_file(const char *title, const char *path, const char *only)
{
    static char line[8192];
    FILE *f = fopen(path, "r");
    if (!f) {
        printf("%s: errno %d\n", title, errno);
        return;
    }
    while (fgets(line, sizeof(line), f)) {
        char key[32] = "";
        (void)sscanf(line, "%31[^:]", key);
        if (!only || (strstr(only, key) && key[0]))
            printf("%s: %s", title, line);
    }
    fclose(f);
}

static void print_fds(void)
{
    for (int fd = 0; fd < 1024; fd++) {
        struct stat st;
        if (fstat(fd, &st) == 0)
            printf("fd %d: %o\n", fd, (unsigned)st.st_mode & S_IFMT);
    }
}

static void print_limits(void)
{
    for (int i = 0; i < 16; i++) {
        struct rlimit l;
        if (getrlimit(i, &l) == 0)
            printf("rlimit %d: %llu %llu\n", i, (unsigned long long)l.rlim_cur,
                (unsigned long long)l.rlim_max);
    }
}

static void print_try(const char *what, long result)
{
    printf("%s: %s\n", what, result >= 0 ? "allowed" : strerror(errno));
}

/* A process takes 16 Landlock layers; those we have show as those we cannot add. */
static void print_landlock(void)
{
    uint64_t attr = 1 << 1;
    int added = 0;
    int fd = (int)syscall(444, &attr, sizeof(attr), 0);
    while (fd >= 0 && added < 64 && syscall(446, fd, 0) == 0)
        added++;
    printf("landlock: %d layers could be added\n", added);
}

int main(int argc, char **argv)
{
    static char buffer[1 << 16];
    static const char *const spaces[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};
    setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
    printf("BEGIN\n");
    print_file("status", "/proc/self/status",
        "Uid Gid Groups NSpid NSsid CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp "
        "Seccomp_filters Threads SigBlk SigIgn Umask");
    print_file("net", "/proc/self/net/dev", "    lo eth0 veth tun");
    print_file("mount", "/proc/self/mountinfo", NULL);
    print_file("cgroup", "/proc/self/cgroup", NULL);
    print_file("oom", "/proc/self/oom_score_adj", NULL);
    print_file("uid_map", "/proc/self/uid_map", NULL);
    print_limits();
    print_fds();
    struct utsname uts;
    (void)uname(&uts);
    printf("host: %s\npid: %d ppid: %d sid: %d\n", uts.nodename, getpid(), getppid(), getsid(0));
    printf("securebits: %d dumpable: %d\n", prctl(PR_GET_SECUREBITS), prctl(PR_GET_DUMPABLE));
    for (size_t i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++) {
        char path[64], link[64] = "";
        (void)snprintf(path, sizeof(path), "/proc/self/ns/%s", spaces[i]);
        (void)!readlink(path, link, sizeof(link) - 1);
        printf("ns %s\n", link);
    }
    print_try("signal init", kill(1, 0));
    print_try("open init's memory", open("/proc/1/mem", O_RDONLY));
    print_try("write to /", open("/probe", O_WRONLY | O_CREAT, 0644));
    print_try("write to /mnt", open("/mnt/shared/probe", O_WRONLY | O_CREAT, 0644));
    print_try("write to /usr", open("/usr/bin/probe", O_WRONLY | O_CREAT, 0644));
    print_try("new user namespace", unshare(CLONE_NEWUSER));
    print_try("mount", syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL));
    print_try("ptrace init", syscall(SYS_ptrace, 16, 1, 0, 0));
    print_try("keyring", syscall(SYS_keyctl, 0, -3, 0));
    int fd = open("/box/made.out", O_WRONLY | O_CREAT, 0644);
    print_try("write to /box", fd);
    (void)!write(fd, "made\n", 5);
    print_landlock();
    for (int i = 1; i < argc; i++)
        printf("arg %s\n", argv[i]);
    printf("END\n");
    fflush(stdout);
    char c;
    while (read(0, &c, 1) > 0)
        ;
    return 0;
}
