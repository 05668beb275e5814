/* SPDX-License-Identifier: Apache-2.0 */

/* Puts the memory of a zygote into huge folios, mapped page by page. To copy such a process,
 * and to end it, the kernel counts references for a run of pages at a time and not for each; a
 * page that a copy writes to is copied alone, as ever. (With a huge page mapped as one, which
 * MADV_COLLAPSE makes of what lies right for it, the first write has to take the mapping
 * apart.)
 *
 * Each piece of memory is copied to a scratch mapping, which is then made huge, and moved from
 * there to where it was. Meanwhile nothing may write to it: a zygote has one thread, what we
 * write to ourselves is left where it is, and all our functions are bound. Where the kernel has
 * no huge pages to give, everything stays as it was. */

#include "base/fs.h"
#include "spawn/warm.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum {
    PAGE = 4096,
    HUGE = 2 << 20,
    PIECE_MIN = 256 << 10, /* less is not worth a mapping of its own */
    GAP_MAX = 512 << 10,   /* of memory not in use, within a piece */
    PIECES_MAX = 64,
    AREA_MAX = 256 << 20,
    MAPS_MAX = 256 << 10,
};

struct piece {
    uintptr_t at;
    size_t size;
    uintptr_t from; /* where its copy lies */
};

struct work {
    unsigned count;
    struct piece pieces[PIECES_MAX];
    unsigned char in_use[AREA_MAX / PAGE];
    char maps[MAPS_MAX];
};

static void *map(size_t size, void *at)
{
    void *area = mmap(at, size, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    return area == MAP_FAILED ? NULL : area;
}

static void add_piece(struct work *w, uintptr_t at, uintptr_t end)
{
    if (end - at >= PIECE_MIN && w->count < PIECES_MAX)
        w->pieces[w->count++] = (struct piece){.at = at, .size = end - at};
}

/* The parts of an area that are in memory. */
static void add_area(struct work *w, uintptr_t at, uintptr_t end)
{
    size_t first = 0;
    size_t last = 0; /* one past the last page that is */
    if (end - at > AREA_MAX || mincore((void *)at, end - at, w->in_use) < 0)
        return;
    for (size_t i = 0; i < (end - at) / PAGE; i++) {
        if (!(w->in_use[i] & 1))
            continue;
        if (!last || (i - last) * PAGE > GAP_MAX) {
            add_piece(w, at + first * PAGE, at + last * PAGE);
            first = i;
        }
        last = i + 1;
    }
    add_piece(w, at + first * PAGE, at + last * PAGE);
}

/* Our own variables, which may be in one mapping with memory of the interpreter's. */
extern char __bss_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));

static void add_mapping(struct work *w, uintptr_t at, uintptr_t end)
{
    const uintptr_t stack = (uintptr_t)__builtin_frame_address(0);
    const uintptr_t ours = (uintptr_t)__bss_start / PAGE * PAGE;
    const uintptr_t ours_end = ((uintptr_t)_end + PAGE - 1) / PAGE * PAGE;
    bool is_work = (uintptr_t)w >= at && (uintptr_t)w < end;
    if (is_work || (stack >= at && stack < end))
        return;
    if (ours_end <= at || end <= ours) {
        add_area(w, at, end);
        return;
    }
    if (at < ours)
        add_area(w, at, ours);
    if (ours_end < end)
        add_area(w, ours_end, end);
}

static void find_pieces(struct work *w)
{
    for (char *line = w->maps, *next; *line; line = next) {
        unsigned long at;
        unsigned long end;
        char rights[5];
        next = strchr(line, '\n');
        next = next ? next + 1 : line + strlen(line);
        /* NOLINTNEXTLINE(cert-err34-c): numbers of the kernel's */
        if (sscanf(line, "%lx-%lx %4s", &at, &end, rights) == 3 && strcmp(rights, "rw-p") == 0)
            add_mapping(w, at, end);
    }
}

/* Lays the copies out from `to` on, none as it would lie in a huge page at its own place: it
 * would be mapped as one there. Returns the end of the last. */
static uintptr_t lay_out(struct work *w, uintptr_t to)
{
    for (unsigned i = 0; i < w->count; i++) {
        to += (to - w->pieces[i].at) % HUGE ? 0 : PAGE;
        w->pieces[i].from = to;
        to += w->pieces[i].size;
    }
    return to;
}

/* Who fails to move a mapping may have lost what was there before. */
static void move_back(const struct piece *p)
{
    void *at = (void *)p->at;
    if (mremap((void *)p->from, p->size, p->size, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at)
        return;
    if (!map(p->size, at))
        abort();
    memcpy(at, (void *)p->from, p->size);
}

static void gather(struct work *w)
{
    size_t most = lay_out(w, 0) + w->count * PAGE + 2 * (size_t)HUGE;
    char *area = w->count ? map(most, NULL) : NULL;
    if (!area)
        return;
    uintptr_t scratch = ((uintptr_t)area + HUGE - 1) / HUGE * HUGE;
    size_t used = (lay_out(w, scratch) - scratch + HUGE - 1) / HUGE * HUGE;
    for (unsigned i = 0; i < w->count; i++)
        memcpy((void *)w->pieces[i].from, (void *)w->pieces[i].at, w->pieces[i].size);
    if (madvise((void *)scratch, used, MADV_COLLAPSE) == 0) {
        for (unsigned i = 0; i < w->count; i++)
            move_back(&w->pieces[i]);
    }
    (void)munmap(area, most);
}

void warm_gather(int proc_fd)
{
    struct work *w = map(sizeof(*w), NULL);
    if (!w)
        return;
    if (fs_read_small(proc_fd, "self/maps", w->maps, sizeof(w->maps)) > 0) {
        find_pieces(w);
        gather(w);
    }
    (void)munmap(w, sizeof(*w));
}
