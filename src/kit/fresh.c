/* SPDX-License-Identifier: Apache-2.0 */

/* See fresh.h. The files of a namespace stay open as long as it looks new and is used
 * again: opening one costs four times as much as reading it. */

#include "kit/fresh.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Every packet, connection and refused attempt counts in snmp or snmp6. (What counts in
 * netstat, which is slow to read, counts in these, too.) So a namespace in which the network
 * was used is never used again. Flow labels are the only thing that outlives its socket without
 * a packet. Of sockstat only two numbers belong to the namespace. */
enum { FILE_SOCKETS, FILE_V4, FILE_V6, FILE_LABELS, FILE_COUNT, FILE_MAX = 16384 };
static const char *const paths[FILE_COUNT] = {"/proc/self/net/sockstat", "/proc/self/net/snmp",
    "/proc/self/net/snmp6", "/proc/self/net/ip6_flowlabel"};

struct files {
    int fds[FILE_COUNT]; /* -1 from FILE_V6 on where the kernel has no IPv6 */
};

static struct known {
    struct files files;
    ino_t ns; /* inode number; unique while the files are open; 0 for an empty entry */
} known[FRESH_KNOWN_MAX];
static unsigned next_known;

static struct {
    char text[FILE_MAX];
    ssize_t len;
} fresh[FILE_COUNT];
static unsigned fresh_sockets;

static void close_files(struct files *files)
{
    for (unsigned i = 0; i < FILE_COUNT; i++)
        close_fd(&files->fds[i]);
}

/* Opens the files of the caller's namespace. */
static int open_files(struct files *ret)
{
    int r = 0;
    for (unsigned i = 0; i < FILE_COUNT; i++) {
        ret->fds[i] = open(paths[i], O_RDONLY | O_CLOEXEC | O_NOCTTY);
        if (ret->fds[i] < 0 && r == 0 && (errno != ENOENT || i < FILE_V6))
            r = -errno;
    }
    if (r < 0)
        close_files(ret);
    return r;
}

/* Reads the number of sockets of any kind, and of TCP connections in TIME_WAIT. The other
 * numbers of sockstat belong to the machine. */
static int count_sockets(const struct files *files, unsigned *ret_used, unsigned *ret_waiting)
{
    char text[512];
    ssize_t n = pread(files->fds[FILE_SOCKETS], text, sizeof(text) - 1, 0);
    if (n < 0)
        return -errno;
    text[n] = '\0';
    /* NOLINTNEXTLINE(cert-err34-c): numbers from the kernel */
    return sscanf(text, "sockets: used %u TCP: inuse %*u orphan %*u tw %u", ret_used,
               ret_waiting) == 2
               ? 0
               : -EPROTO;
}

int fresh_learn(void)
{
    struct files files;
    unsigned waiting;
    int r = open_files(&files);
    if (r < 0)
        return r;
    r = count_sockets(&files, &fresh_sockets, &waiting);
    for (unsigned i = FILE_V4; r == 0 && i < FILE_COUNT; i++) {
        char more;
        if (files.fds[i] < 0)
            continue;
        fresh[i].len = pread(files.fds[i], fresh[i].text, FILE_MAX, 0);
        /* The whole file must fit: look_fresh() compares one read only. */
        if (fresh[i].len <= 0 || pread(files.fds[i], &more, 1, fresh[i].len) != 0)
            r = -EPROTO;
    }
    close_files(&files);
    return r;
}

static bool look_fresh(const struct files *files)
{
    static char text[FILE_MAX];
    unsigned sockets = 0;
    unsigned waiting = 0;
    if (count_sockets(files, &sockets, &waiting) < 0 || sockets != fresh_sockets || waiting)
        return false;
    for (unsigned i = FILE_V4; i < FILE_COUNT; i++) {
        if ((files->fds[i] < 0) != (fresh[i].len == 0))
            return false;
        if (files->fds[i] >= 0 && (pread(files->fds[i], text, FILE_MAX, 0) != fresh[i].len ||
                                      memcmp(text, fresh[i].text, (size_t)fresh[i].len) != 0))
            return false;
    }
    return true;
}

static void forget(struct known *k)
{
    close_files(&k->files);
    k->ns = 0;
}

/* Opens the files of a namespace. The entry that was added first makes room. */
static struct known *meet(int ns_fd, ino_t ns)
{
    struct known *k = &known[next_known++ % FRESH_KNOWN_MAX];
    if (k->ns)
        forget(k);
    if (setns(ns_fd, CLONE_NEWNET) < 0 || open_files(&k->files) < 0)
        return NULL;
    k->ns = ns;
    return k;
}

static struct known *find(ino_t ns)
{
    for (unsigned i = 0; i < FRESH_KNOWN_MAX; i++) {
        if (known[i].ns == ns)
            return &known[i];
    }
    return NULL;
}

void fresh_forget(int ns_fd)
{
    struct stat st;
    struct known *k = fstat(ns_fd, &st) < 0 ? NULL : find(st.st_ino);
    if (k)
        forget(k);
}

bool fresh_check(int ns_fd)
{
    struct stat st;
    if (fstat(ns_fd, &st) < 0)
        return false;
    struct known *k = find(st.st_ino);
    if (!k && !(k = meet(ns_fd, st.st_ino)))
        return false;
    bool is_fresh = look_fresh(&k->files);
    if (!is_fresh)
        forget(k);
    return is_fresh;
}
