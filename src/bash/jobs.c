/* SPDX-License-Identifier: Apache-2.0 */

/* See jobs.h. */

#include "bash/jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "bash/frame.h"
#include "bash/proctree.h"

static bool is_job(const struct process *p, pid_t shell)
{
    return p->pid != shell && (p->parent == shell || p->parent == getpid());
}

/* Reads the command line, with spaces between the words. Returns its length. */
static size_t read_command(pid_t pid, char *out, size_t size)
{
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, size);
    while (n > 0 && out[n - 1] == '\0')
        n--;
    for (ssize_t i = 0; i < n; i++)
        if (out[i] == '\0')
            out[i] = ' ';
    return n > 0 ? (size_t)n : 0;
}

/* A process that the shell forked without exec has the shell's command line, which would
 * mislead. */
static void append_command(struct buf *b, pid_t pid, pid_t shell)
{
    char text[4096], shells[4096];
    size_t len = read_command(pid, text, sizeof(text));
    size_t shells_len = read_command(shell, shells, sizeof(shells));
    if (len == shells_len && memcmp(text, shells, len) == 0)
        (void)json_append(b, "(subshell)", strlen("(subshell)"));
    else
        (void)json_append(b, text, len);
}

void jobs_list(struct buf *b, pid_t shell)
{
    cleanup_tree struct tree t = {0};
    (void)tree_read(&t);
    (void)buf_append_str(b, "[");
    const char *comma = "";
    for (size_t i = 0; i < t.count; i++) {
        const struct process *p = &t.all[i];
        if (!is_job(p, shell) || b->max - b->len < 65536)
            continue;
        size_t processes = 0;
        for (size_t k = 0; k < t.count; k++)
            processes += tree_is_below(&t, t.all[k].pid, p->pid);
        (void)buf_printf(b, "%s{\"id\":%d,\"command\":", comma, (int)p->pid);
        append_command(b, p->pid, shell);
        (void)buf_printf(b, ",\"state\":\"%s\",\"processes\":%zu}",
            p->state == 'T' || p->state == 't' ? "stopped" : "running", processes);
        comma = ",";
    }
    (void)buf_append_str(b, "]");
}

int jobs_end(pid_t shell, pid_t id, unsigned grace_ms)
{
    cleanup_tree struct tree t = {0};
    (void)tree_read(&t);
    for (size_t i = 0; i < t.count; i++) {
        if (t.all[i].pid == id && is_job(&t.all[i], shell)) {
            tree_end(id, grace_ms);
            return 0;
        }
    }
    return -ESRCH;
}
