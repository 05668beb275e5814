/* SPDX-License-Identifier: Apache-2.0 */

/* Runs a program on a host that lacks something:
 *
 *   deny [NUMBER=ERRNO[@ARG:VALUE]]... [userns] [KEY=0]... [cover=DIR]... -- PROGRAM [ARGS]
 *
 * NUMBER=ERRNO makes that system call fail, with @ARG:VALUE only where the argument has the value
 * (as a mask: where it has all these bits). `userns` runs in a user namespace with every id mapped;
 * max_net_namespaces=0 and the like then set its limits under /proc/sys/user. cover=DIR puts an empty
 * tmpfs on a directory, in a mount namespace of its own. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_CODE = 512 };

static struct sock_filter code[MAX_CODE];
static unsigned short count;

static void die(const char *what)
{
    perror(what);
    _exit(90);
}

static void put(struct sock_filter f)
{
    if (count < MAX_CODE)
        code[count++] = f;
}

static void deny(unsigned nr, unsigned error, int arg, unsigned mask)
{
    unsigned skip = arg < 0 ? 1 : 4;
    put((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    put((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, (unsigned char)skip));
    if (arg >= 0) {
        put((struct sock_filter)BPF_STMT(
            BPF_LD | BPF_W | BPF_ABS, (unsigned)(offsetof(struct seccomp_data, args) + 8 * arg)));
        put((struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
        put((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, mask, 0, 1));
    }
    put((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        die(path);
    close(fd);
}

/* A child outside the new namespace writes its maps. */
static void enter_userns(void)
{
    int go[2];
    int status;
    char path[64];
    pid_t self = getpid();
    if (pipe(go) < 0)
        die("pipe");
    pid_t pid = fork();
    if (pid == 0) {
        char c;
        close(go[1]);
        (void)!read(go[0], &c, 1);
        snprintf(path, sizeof path, "/proc/%d/uid_map", self);
        write_file(path, "0 0 4294967295");
        snprintf(path, sizeof path, "/proc/%d/gid_map", self);
        write_file(path, "0 0 4294967295");
        _exit(0);
    }
    if (unshare(CLONE_NEWUSER) < 0)
        die("unshare");
    close(go[0]);
    close(go[1]);
    if (waitpid(pid, &status, 0) < 0 || status != 0)
        die("maps");
}

int main(int argc, char **argv)
{
    int i = 1;
    int covered = 0;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        unsigned nr, error, mask;
        int arg;
        char path[256];
        if (strcmp(argv[i], "userns") == 0) {
            enter_userns();
        } else if (strncmp(argv[i], "max_", 4) == 0) {
            snprintf(path, sizeof path, "/proc/sys/user/%.*s", (int)strcspn(argv[i], "="), argv[i]);
            write_file(path, "0");
        } else if (strncmp(argv[i], "cover=", 6) == 0) {
            if (!covered++ && (unshare(CLONE_NEWNS) < 0 ||
                    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
                die("unshare");
            if (mount("none", argv[i] + 6, "tmpfs", 0, "size=4k") < 0)
                die(argv[i]);
        } else if (sscanf(argv[i], "%u=%u@%d:%u", &nr, &error, &arg, &mask) == 4) {
            deny(nr, error, arg, mask);
        } else if (sscanf(argv[i], "%u=%u", &nr, &error) == 2) {
            deny(nr, error, -1, 0);
        } else {
            die(argv[i]);
        }
    }
    put((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    struct sock_fprog program = {count, code};
    if (count > 1 && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        die("seccomp");
    execv(argv[i + 1], argv + i + 1);
    die(argv[i + 1]);
    return 91;
}
