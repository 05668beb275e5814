/* SPDX-License-Identifier: Apache-2.0 */

/* The pages of a zygote that every program writes to. Each would be copied when a box writes to
 * it for the first time, by a page fault of its own, while somebody waits. A page that is
 * pinned the kernel copies when it forks, for less; so they are pinned, as buffers of an
 * io_uring that is used for nothing else and that no box gets. (They are charged to the
 * zygote's group then, as all that a box shares with it is.)
 *
 * Which pages these are shows a copy of the zygote that runs an empty program: those that it
 * has for itself afterwards. Where there is no io_uring, or not as much memory may be locked,
 * boxes copy them as they go. */

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/sys.h"
#include "warm/warm.h"
#include "warm/maps.h"
#include "proto/zygote.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum {
    HOT_MAX = 1024,
    PAGES_MAX = 64 << 10,
    AT_ONCE = 512, /* entries of pagemap */
};

static const uint64_t PRESENT = 1ull << 63;
static const uint64_t IS_FILE = 1ull << 61;
static const uint64_t IS_OURS_ALONE = 1ull << 56;

struct work {
    int pagemap_fd;
    size_t count;
    uintptr_t pages[PAGES_MAX]; /* that both have */
    char maps[WARM_MAPS_MAX];
};

/* In the copy. */
static struct work *work;
static int tell_fd = -1;
static int wait_fd = -1;

/* Adds what is in memory of one mapping. */
static void add_mapping(void *context, const struct warm_mapping *m)
{
    struct work *w = context;
    uint64_t entries[AT_ONCE];
    uintptr_t at = m->at;
    while (m->is_writable && at < m->end) {
        size_t left = (m->end - at) / WARM_PAGE;
        size_t count = left < AT_ONCE ? left : AT_ONCE;
        ssize_t n = pread(w->pagemap_fd, entries, count * sizeof(entries[0]),
            (off_t)(at / WARM_PAGE * sizeof(entries[0])));
        if (n != (ssize_t)(count * sizeof(entries[0])))
            return;
        for (size_t i = 0; i < count; i++) {
            if ((entries[i] & (PRESENT | IS_FILE)) == PRESENT && w->count < PAGES_MAX)
                w->pages[w->count++] = at + i * WARM_PAGE;
        }
        at += count * WARM_PAGE;
    }
}

static int open_pagemap(void)
{
    return openat(ZYGOTE_STAGE_FD, "proc/self/pagemap", O_RDONLY | O_CLOEXEC);
}

EXPORT _Noreturn void hermes_warm_tried(void)
{
    uintptr_t hot[HOT_MAX];
    size_t count = 0;
    for (size_t i = 0; i < work->count && count < HOT_MAX; i++) {
        uint64_t entry;
        if (pread(work->pagemap_fd, &entry, sizeof(entry),
                (off_t)(work->pages[i] / WARM_PAGE * sizeof(entry))) == sizeof(entry) &&
            (entry & (PRESENT | IS_OURS_ALONE)) == (PRESENT | IS_OURS_ALONE))
            hot[count++] = work->pages[i];
    }
    (void)fs_write_all(tell_fd, hot, count * sizeof(hot[0]));
    (void)close(tell_fd);
    char end;
    (void)!read(wait_fd, &end, 1); /* until the zygote has its own */
    _exit(0);
}

/* Registers them with an io_uring, whose descriptor stays open for as long as we live. */
static void pin(const uintptr_t *pages, size_t count)
{
    static struct iovec runs[HOT_MAX];
    unsigned run_count = 0;
    struct io_uring_params params = {0};
    for (size_t i = 0; i < count; i++) {
        struct iovec *last = run_count ? &runs[run_count - 1] : NULL;
        if (last && (uintptr_t)last->iov_base + last->iov_len == pages[i])
            last->iov_len += WARM_PAGE;
        else
            runs[run_count++] =
                (struct iovec){.iov_base = (void *)pages[i], .iov_len = WARM_PAGE};
    }
    int fd = (int)syscall(SYS_io_uring_setup, 1, &params);
    if (fd >= 0 &&
        syscall(SYS_io_uring_register, fd, IORING_REGISTER_BUFFERS, runs, run_count) < 0)
        (void)close(fd);
}

/* Takes them out of the huge folios that they are in (warm_gather.c), which would be copied
 * whole: as long as the copy shares them, a write gives us a page of our own. */
static void pin_hot(int from_fd)
{
    static uintptr_t hot[HOT_MAX];
    size_t size = 0;
    ssize_t n;
    while (
        size < sizeof(hot) && (n = read(from_fd, (char *)hot + size, sizeof(hot) - size)) > 0)
        size += (size_t)n;
    size_t count = size / sizeof(hot[0]);
    for (size_t i = 0; i < count; i++) {
        volatile char *page = (volatile char *)hot[i];
        char byte = *page;
        *page = byte;
    }
    if (count)
        pin(hot, count);
}

EXPORT int hermes_warm_try(void)
{
    int told[2] = {-1, -1};
    int held[2] = {-1, -1};
    if (pipe2(told, O_CLOEXEC) < 0 || pipe2(held, O_CLOEXEC) < 0)
        goto out;
    int pid = sys_fork();
    if (pid == 0) {
        close_fd(&told[0]);
        close_fd(&held[1]);
        tell_fd = told[1];
        wait_fd = held[0];
        work = mmap(NULL, sizeof(*work), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
            0); /* no private page that we alone have */
        if (work == MAP_FAILED)
            _exit(1);
        work->pagemap_fd = open_pagemap();
        warm_each_mapping(work->maps, add_mapping, work);
        return 1;
    }
    close_fd(&told[1]);
    if (pid > 0)
        pin_hot(told[0]);
    close_fd(&held[1]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
out:
    close_fd(&told[0]);
    close_fd(&told[1]);
    close_fd(&held[0]);
    close_fd(&held[1]);
    return 0;
}
