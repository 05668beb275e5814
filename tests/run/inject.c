/* SPDX-License-Identifier: Apache-2.0 */

/* Stands in for hermes-spawn (HERMES_SPAWN) and makes one system call of one of its processes
 * fail:
 *
 *   inject LOG ROLE CALL N ERRNO PROGRAM     fails the Nth CALL of that role
 *   inject LOG ROLE CALL N kill PROGRAM      there, ends the spawner by SIGKILL
 *
 *   inject LOG record - - - PROGRAM          writes down every call: ROLE CALL N
 *
 * Roles: spawner, setup (hermes-setup and its other helpers), init (its child in new
 * namespaces), payload (init's first child, until it has executed the program), collector
 * (init's later children). strace can do the same but counts per process without telling which;
 * a site must be named exactly. A line "fired" in LOG tells that the site was reached. Calls
 * are numbers; the test knows their names. */

#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PTRACE_GET_SYSCALL_INFO
#error "needs Linux 5.3 headers"
#endif

enum { MAX_TASKS = 64, MAX_CALL = 1024 };

enum role { ROLE_SPAWNER, ROLE_SETUP, ROLE_INIT, ROLE_PAYLOAD, ROLE_COLLECTOR, ROLE_OTHER };
static const char *const role_names[] = {
    "spawner", "setup", "init", "payload", "collector", "other"};

struct task {
    pid_t pid;
    pid_t parent;
    enum role role;
    int children;
    int fail;  /* the call it is in fails */
    int begun; /* the spawner's own exec is over */
    int held;  /* it was seen before its parent told of it, and stands still until then */
    unsigned counts[MAX_CALL];
};

static struct task tasks[MAX_TASKS];
static FILE *out;

static struct task *find(pid_t pid)
{
    for (int i = 0; i < MAX_TASKS; i++) {
        if (tasks[i].pid == pid)
            return &tasks[i];
    }
    return NULL;
}

/* Whether it has the user namespace of its parent, as helpers of the spawner have and boxes and
 * zygotes have not. */
static int is_helper(pid_t pid, pid_t parent_pid)
{
    char path[32];
    struct stat own, parents;
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
    int r = stat(path, &own);
    (void)snprintf(path, sizeof(path), "/proc/%d/ns/user", parent_pid);
    return r == 0 && stat(path, &parents) == 0 && own.st_ino == parents.st_ino;
}

static struct task *add(pid_t pid, pid_t parent_pid)
{
    struct task *t = find(pid);
    struct task *parent = parent_pid ? find(parent_pid) : NULL;
    if (!t && (t = find(0))) {
        memset(t, 0, sizeof(*t));
        t->pid = pid;
        t->role = ROLE_OTHER;
    }
    if (!t)
        exit(99);
    if (!parent_pid)
        t->role = ROLE_SPAWNER;
    else if (parent && parent->role == ROLE_SPAWNER)
        t->role = is_helper(pid, parent_pid) ? ROLE_SETUP : ROLE_INIT;
    else if (parent && parent->role == ROLE_INIT)
        t->role = parent->children++ ? ROLE_COLLECTOR : ROLE_PAYLOAD;
    t->begun = parent_pid != 0;
    return t;
}

static void let_go(struct task *t)
{
    if (t->pid && t->held) {
        t->held = 0;
        t->counts[MAX_CALL - 1] = 1; /* its first stop is over */
        (void)ptrace(PTRACE_SYSCALL, t->pid, 0, 0);
    }
}

/* A parent that died cannot tell of its children. */
static void let_go_all(void)
{
    for (int i = 0; i < MAX_TASKS; i++)
        let_go(&tasks[i]);
}

/* The number is replaced by one that does not exist, and its result by the wished error. */
static void set_registers(pid_t pid, int entry, int error)
{
    struct user_regs_struct regs;
    struct iovec io = {&regs, sizeof(regs)};
    if (ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &io) < 0)
        return;
#if defined(__x86_64__)
    if (entry)
        regs.orig_rax = (unsigned long)-1;
    else
        regs.rax = (unsigned long)-error;
#elif defined(__aarch64__)
    if (entry) {
        int none = -1;
        struct iovec nr = {&none, sizeof(none)};
        (void)ptrace(PTRACE_SETREGSET, pid, (void *)0x404, &nr); /* NT_ARM_SYSTEM_CALL */
    } else {
        regs.regs[0] = (unsigned long)-error;
    }
#endif
    (void)ptrace(PTRACE_SETREGSET, pid, (void *)NT_PRSTATUS, &io);
}

/* Kills the spawner and waits until it is dead. Meanwhile the process at the site stands still.
 * Returns the spawner's exit status. */
static int end_spawner(pid_t spawner)
{
    int status = 0;
    (void)kill(spawner, SIGKILL);
    while (waitpid(spawner, &status, __WALL) == spawner && !WIFEXITED(status) &&
           !WIFSIGNALED(status))
        ;
    struct task *gone = find(spawner);
    if (gone)
        gone->pid = 0;
    let_go_all();
    return 128 + SIGKILL;
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 98;
    int record = strcmp(argv[2], "record") == 0;
    unsigned long want_call = strtoul(argv[3], NULL, 10);
    unsigned want_n = (unsigned)strtoul(argv[4], NULL, 10);
    int kills = strcmp(argv[5], "kill") == 0;
    int error = atoi(argv[5]);
    int fd = open(argv[1], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    out = fdopen(fd, "a");
    if (!out)
        return 97;
    setvbuf(out, NULL, _IOLBF, 0);
    pid_t spawner = fork();
    if (spawner == 0) {
        (void)ptrace(PTRACE_TRACEME, 0, 0, 0);
        (void)raise(SIGSTOP);
        execv(argv[6], (char *[]){(char *)"hermes-spawn", NULL});
        _exit(127);
    }
    /* Whatever we hold open would keep the other side waiting. */
    for (int i = 0; i < 64; i++) {
        if (i != fd && i != 2)
            close(i);
    }
    add(spawner, 0);
    int status;
    if (waitpid(spawner, &status, 0) < 0)
        return 96;
    (void)ptrace(PTRACE_SETOPTIONS, spawner, 0,
        PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
            PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL);
    (void)ptrace(PTRACE_SYSCALL, spawner, 0, 0);
    int result = 95;
    for (;;) {
        pid_t pid = waitpid(-1, &status, __WALL);
        if (pid < 0) {
            if (errno == EINTR)
                continue;
            break;
        }
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (pid == spawner)
                result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            struct task *gone = find(pid);
            if (gone)
                gone->pid = 0;
            if (gone && gone->role <= ROLE_INIT)
                let_go_all();
            continue;
        }
        struct task *t = find(pid);
        if (!t) { /* its birth is told in a moment, and with it its role */
            add(pid, -1)->held = 1;
            continue;
        }
        int sig = WSTOPSIG(status);
        int event = status >> 16;
        int deliver = 0;
        if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK ||
            event == PTRACE_EVENT_CLONE) {
            unsigned long child;
            if (ptrace(PTRACE_GETEVENTMSG, pid, 0, &child) == 0)
                let_go(add((pid_t)child, pid));
        } else if (event == PTRACE_EVENT_EXEC) {
            if (t->role == ROLE_SPAWNER) {
                t->begun = 1;
            } else if (t->role == ROLE_PAYLOAD) {
                (void)ptrace(PTRACE_DETACH, pid, 0, 0);
                t->pid = 0;
                continue;
            }
        } else if (sig == (SIGTRAP | 0x80)) {
            struct __ptrace_syscall_info info;
            memset(&info, 0, sizeof(info));
            (void)ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info), &info);
            unsigned long nr = info.entry.nr;
            if (info.op == PTRACE_SYSCALL_INFO_ENTRY && t->begun && t->role != ROLE_OTHER &&
                nr < MAX_CALL) {
                unsigned n = ++t->counts[nr];
                if (record) {
                    fprintf(out, "%s %lu %u\n", role_names[t->role], nr, n);
                } else if (nr == want_call && n == want_n &&
                           strcmp(argv[2], role_names[t->role]) == 0) {
                    fprintf(out, "fired\n");
                    if (kills) {
                        result = end_spawner(spawner);
                    } else {
                        t->fail = 1;
                        set_registers(pid, 1, 0);
                    }
                }
            } else if (info.op == PTRACE_SYSCALL_INFO_EXIT && t->fail) {
                t->fail = 0;
                set_registers(pid, 0, error);
            }
        } else if (sig == SIGSTOP && t->role != ROLE_SPAWNER && t->counts[0] == 0 &&
                   t->counts[MAX_CALL - 1]++ == 0) {
            /* the stop every new child begins with */
        } else if (sig != SIGTRAP) {
            deliver = sig;
        }
        (void)ptrace(PTRACE_SYSCALL, pid, 0, deliver);
    }
    return result;
}
