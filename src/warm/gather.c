/* SPDX-License-Identifier: Apache-2.0 */

/* Moves the data of a zygote into huge folios that are mapped page by page. The kernel counts
 * references to a run of such pages at a time and not to each, when a zygote is forked and when
 * a program ends. A page that a program writes to is copied alone, as ever.
 *
 * Each mapping is copied to a scratch area, which is then made huge, and moved from there to
 * its old place. Meanwhile nothing may write to it: a zygote has one thread, and what this file
 * writes to, its own variables and the stack, stays where it is. Where the kernel has no huge
 * pages to give, everything stays as it was. */

#include "base/fs.h"
#include "proto/zygote.h"
#include "warm/warm.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum {
    PAGE = 4096,
    HUGE = 2 << 20,
    /* Less is not worth it; memory that fork is to treat in a way of its own
     * (MADV_WIPEONFORK) is less. */
    PIECE_MIN = 256 << 10,
    PIECE_MAX = 64 << 20,
    PIECES_MAX = 32,
};

static struct piece {
    uintptr_t at, end; /* where it is, and */
    uintptr_t copy;    /* where its copy lies */
} pieces[PIECES_MAX];
static unsigned piece_count;

/* Variables of this library, which may share a mapping with memory of the interpreter above. */
extern char __bss_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));

static void add_piece(uintptr_t at, uintptr_t end)
{
    const uintptr_t stack = (uintptr_t)__builtin_frame_address(0);
    const uintptr_t own_end = ((uintptr_t)_end + PAGE - 1) / PAGE * PAGE;
    if ((uintptr_t)__bss_start < end && at < own_end)
        at = own_end;
    bool is_stack = at <= stack && stack < end;
    if (at < end && end - at >= PIECE_MIN && end - at <= PIECE_MAX && !is_stack &&
        piece_count < PIECES_MAX)
        pieces[piece_count++] = (struct piece){.at = at, .end = end};
}

static void find_pieces(void)
{
    char text[32 << 10];
    if (sysconf(_SC_PAGESIZE) != PAGE ||
        fs_read_small(ZYGOTE_STAGE_FD, "proc/self/maps", text, sizeof(text)) <= 0)
        return;
    for (char *line = text; line && *line; line = strchr(line, '\n')) {
        uintptr_t at, end;
        char rights[5];
        line += *line == '\n';
        /* NOLINTNEXTLINE(cert-err34-c): numbers of the kernel's */
        if (sscanf(line, "%lx-%lx %4s", &at, &end, rights) == 3 && strcmp(rights, "rw-p") == 0)
            add_piece(at, end);
    }
}

/* Lays the copies out from `to` on, where a huge page begins; returns the end of the last. The
 * kernel moves a huge page as one mapping if it lies in its new place as in the old: no piece
 * may. */
static uintptr_t lay_out(uintptr_t to)
{
    for (unsigned i = 0; i < piece_count; i++) {
        struct piece *p = &pieces[i];
        p->copy = to + ((to - p->at) % HUGE ? 0 : PAGE);
        to = p->copy + (p->end - p->at);
    }
    return to;
}

/* A mapping that cannot be moved may be lost: then so is the zygote. */
static void move_back(const struct piece *p)
{
    void *at = (void *)p->at;
    size_t size = p->end - p->at;
    if (mremap((void *)p->copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, at) != at)
        abort();
}

EXPORT void hermes_warm_gather(void)
{
    find_pieces();
    size_t used = (lay_out(0) + HUGE) / HUGE * HUGE;
    char *area =
        mmap(NULL, used + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        return;
    uintptr_t first = ((uintptr_t)area + HUGE - 1) / HUGE * HUGE;
    (void)lay_out(first);
    for (unsigned i = 0; i < piece_count; i++)
        memcpy((void *)pieces[i].copy, (void *)pieces[i].at, pieces[i].end - pieces[i].at);
    int r = -1;
    for (int attempt = 0; r < 0 && attempt < 3; attempt++) /* others may hold a page a moment */
        r = madvise((void *)first, used, MADV_COLLAPSE);
    for (unsigned i = 0; r == 0 && i < piece_count; i++)
        move_back(&pieces[i]);
    (void)munmap(area, used + HUGE);
}
