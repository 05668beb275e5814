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

#include "spawn/warm.h"
#include "spawn/warm_maps.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum {
    HUGE = 2 << 20,
    /* Less is not worth a mapping of its own, and what the kernel is to treat in a way of its
     * own when it forks (MADV_WIPEONFORK) is less. */
    PIECE_MIN = 256 << 10,
    GAP_MAX = 512 << 10, /* of memory not in use, within a piece */
    PIECES_MAX = 64,
    AREA_MAX = 256 << 20,
};

struct piece {
    uintptr_t at;
    size_t size;
    uintptr_t from; /* where its copy lies */
};

struct work {
    unsigned count;
    struct piece pieces[PIECES_MAX];
    unsigned char in_use[AREA_MAX / WARM_PAGE];
    char maps[WARM_MAPS_MAX];
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
    for (size_t i = 0; i < (end - at) / WARM_PAGE; i++) {
        if (!(w->in_use[i] & 1))
            continue;
        if (!last || (i - last) * WARM_PAGE > GAP_MAX) {
            add_piece(w, at + first * WARM_PAGE, at + last * WARM_PAGE);
            first = i;
        }
        last = i + 1;
    }
    add_piece(w, at + first * WARM_PAGE, at + last * WARM_PAGE);
}

/* Our own variables, which may be in one mapping with memory of the interpreter's. */
extern char __bss_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));

static void add_mapping(void *context, uintptr_t at, uintptr_t end)
{
    struct work *w = context;
    const uintptr_t stack = (uintptr_t)__builtin_frame_address(0);
    const uintptr_t ours = (uintptr_t)__bss_start / WARM_PAGE * WARM_PAGE;
    const uintptr_t ours_end = ((uintptr_t)_end + WARM_PAGE - 1) / WARM_PAGE * WARM_PAGE;
    if (stack >= at && stack < end)
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

/* Lays the copies out from `to` on, none as it would lie in a huge page at its own place: it
 * would be mapped as one there. Returns the end of the last. */
static uintptr_t lay_out(struct work *w, uintptr_t to)
{
    for (unsigned i = 0; i < w->count; i++) {
        to += (to - w->pieces[i].at) % HUGE ? 0 : WARM_PAGE;
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
    size_t most = lay_out(w, 0) + w->count * WARM_PAGE + 2 * (size_t)HUGE;
    char *area = w->count ? map(most, NULL) : NULL;
    if (!area)
        return;
    uintptr_t scratch = ((uintptr_t)area + HUGE - 1) / HUGE * HUGE;
    size_t used = (lay_out(w, scratch) - scratch + HUGE - 1) / HUGE * HUGE;
    for (unsigned i = 0; i < w->count; i++)
        memcpy((void *)w->pieces[i].from, (void *)w->pieces[i].at, w->pieces[i].size);
    int r = -1;
    for (int attempt = 0; r < 0 && attempt < 3; attempt++) /* others may hold a page a moment */
        r = madvise((void *)scratch, used, MADV_COLLAPSE);
    if (r == 0) {
        for (unsigned i = 0; i < w->count; i++)
            move_back(&w->pieces[i]);
    }
    (void)munmap(area, most);
}

EXPORT void hermes_warm_gather(void)
{
    struct work *w = mmap(NULL, sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
        -1, 0); /* or the kernel would make it one with other memory */
    if (w == MAP_FAILED)
        return;
    warm_each_mapping(w->maps, add_mapping, w);
    gather(w);
    (void)munmap(w, sizeof(*w));
}
