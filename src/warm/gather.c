/* SPDX-License-Identifier: Apache-2.0 */

/* Moves the data of a zygote into huge folios that are mapped page by page. When a zygote is
 * forked, and when a program ends, the kernel then counts references for a run of pages at a
 * time instead of for each page. A page that a program writes to is still copied alone.
 *
 * Each mapping is copied to a scratch area, which is then made huge and moved to the old place.
 * Meanwhile nothing may write to the mapping: a zygote has one thread, and the variables of
 * this file and the stack are not moved. Where the kernel has no huge pages to give, everything
 * stays as it was. */

#include "base/os/fs.h"
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
    /* Bytes. Smaller mappings are not worth it. Memory with MADV_WIPEONFORK, which would lose
     * that property, is smaller. */
    PIECE_MIN = 256 << 10,
    PIECE_MAX = 64 << 20,
    PIECES_MAX = 32,
};

static struct piece {
    uintptr_t at, end; /* address of the mapping */
    uintptr_t copy;    /* address of its copy */
} pieces[PIECES_MAX];
static unsigned piece_count;

/* Variables of this library. They may share a mapping with memory of the interpreter that
 * follows them. */
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
        /* NOLINTNEXTLINE(cert-err34-c): numbers from the kernel */
        if (sscanf(line, "%lx-%lx %4s", &at, &end, rights) == 3 && strcmp(rights, "rw-p") == 0)
            add_piece(at, end);
    }
}

/* Lays out the copies from `to` on, the start of a huge page; returns the end of the last one.
 * If a copy lay at the same offset in a huge page as its old place, the kernel would move the
 * huge page as one mapping. So no copy has the same offset. */
static uintptr_t lay_out(uintptr_t to)
{
    for (unsigned i = 0; i < piece_count; i++) {
        struct piece *p = &pieces[i];
        p->copy = to + ((to - p->at) % HUGE ? 0 : PAGE);
        to = p->copy + (p->end - p->at);
    }
    return to;
}

/* If mremap() fails, the old mapping may be gone already: the zygote ends. */
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
    /* another process may hold a page for a moment */
    for (int attempt = 0; r < 0 && attempt < 3; attempt++)
        r = madvise((void *)first, used, MADV_COLLAPSE);
    for (unsigned i = 0; r == 0 && i < piece_count; i++)
        move_back(&pieces[i]);
    (void)munmap(area, used + HUGE);
}
