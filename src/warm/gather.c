/* SPDX-License-Identifier: Apache-2.0 */

/* Lays out the memory of a zygote so that a copy of it costs little: to make, to run and to
 * end.
 *
 * Its data goes into huge folios that are mapped page by page. The kernel counts references for
 * a run of such pages at a time and not for each; a page that a copy writes to is copied alone,
 * as ever. (With a huge page mapped as one, which MADV_COLLAPSE makes of what lies right for
 * it, the first write has to take the mapping apart.)
 *
 * Its code, which is files', becomes memory of its own with the same content at the same place.
 * fork does not copy page tables of files, so every program would find its code again by page
 * faults. Where code and constants of one file fill huge pages they are mapped as such, one
 * entry each; the rest goes where the data goes. What lies side by side, headers, code,
 * constants, is one mapping then instead of four: they are all readable and executable, as they
 * were in files before linkers took them apart.
 *
 * Each piece of memory is copied to a scratch mapping, which is then made huge, and moved from
 * there to where it was. Meanwhile nothing may write to it: a zygote has one thread, what we
 * write to ourselves is left where it is, and all our functions are bound. Code may well be
 * executed meanwhile: it is replaced by the same within one call. Where the kernel has no huge
 * pages to give, everything stays as it was. */

#include "warm/warm.h"
#include "warm/maps.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum {
    HUGE = 2 << 20,
    /* Less data is not worth a mapping of its own, and what the kernel is to treat in a way of
     * its own when it forks (MADV_WIPEONFORK) is less. */
    DATA_MIN = 256 << 10,
    GAP_MAX = 512 << 10, /* of memory not in use, within a piece */
    END_MAX = 64 << 10,  /* the same, at the ends of a mapping: more is left to itself */
    PIECES_MAX = 512,
    AREA_MAX = 256 << 20,
};

struct piece {
    uintptr_t at;
    size_t size;
    uintptr_t from; /* where its copy lies */
    bool is_code;
    bool is_huge; /* is to be mapped by huge pages */
};

struct work {
    unsigned count;
    struct piece pieces[PIECES_MAX];
    struct warm_mapping run; /* of one file's mappings, that are side by side */
    unsigned char in_use[AREA_MAX / WARM_PAGE];
    char maps[WARM_MAPS_MAX];
};

static void *map(size_t size, void *at)
{
    void *area = mmap(at, size, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    return area == MAP_FAILED ? NULL : area;
}

static void add_piece(struct work *w, const struct piece *p)
{
    if (p->size && w->count < PIECES_MAX)
        w->pieces[w->count++] = *p;
}

static void add_data(struct work *w, uintptr_t at, uintptr_t end)
{
    if (end - at >= DATA_MIN)
        add_piece(w, &(struct piece){.at = at, .size = end - at});
}

/* The parts of an area that are in memory. */
static void add_area(struct work *w, uintptr_t at, uintptr_t end)
{
    uintptr_t first = at;
    uintptr_t last = at; /* end of what is in memory so far */
    if (end - at > AREA_MAX || mincore((void *)at, end - at, w->in_use) < 0)
        return;
    for (size_t i = 0; i < (end - at) / WARM_PAGE; i++) {
        uintptr_t page = at + i * WARM_PAGE;
        if (!(w->in_use[i] & 1))
            continue;
        if (page - last > (last == at ? END_MAX : GAP_MAX)) {
            add_data(w, first, last);
            first = page;
        }
        last = page + WARM_PAGE;
    }
    add_data(w, first, end - last <= END_MAX ? end : last);
}

/* Our own variables, which may be in one mapping with memory of the interpreter's. */
extern char __bss_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));

static void add_writable(struct work *w, uintptr_t at, uintptr_t end)
{
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

static void add_code(struct work *w, uintptr_t at, uintptr_t end)
{
    uintptr_t first = (at + HUGE - 1) / HUGE * HUGE;
    uintptr_t last = end / HUGE * HUGE;
    if (first >= last)
        first = last = end;
    add_piece(w, &(struct piece){.at = at, .size = first - at, .is_code = true});
    add_piece(w,
        &(struct piece){.at = first, .size = last - first, .is_code = true, .is_huge = true});
    add_piece(w, &(struct piece){.at = last, .size = end - last, .is_code = true});
}

static void end_run(struct work *w)
{
    if (w->run.is_code)
        add_code(w, w->run.at, w->run.end);
    w->run = (struct warm_mapping){0};
}

static void add_mapping(void *context, const struct warm_mapping *m)
{
    struct work *w = context;
    bool is_files = m->inode && !m->is_writable;
    if (is_files && m->inode == w->run.inode && m->at == w->run.end) {
        w->run.end = m->end;
        w->run.is_code = w->run.is_code || m->is_code;
        return;
    }
    end_run(w);
    if (is_files)
        w->run = *m;
    else if (m->is_writable && !m->is_code)
        add_writable(w, m->at, m->end);
}

/* Lays the copies out from `to` on, where a huge page begins. The kernel keeps one that lies in
 * its new place as it lay in the old: so must pieces that are to be huge, and no other. Returns
 * the end of the last. */
static uintptr_t lay_out(struct work *w, uintptr_t to)
{
    for (unsigned i = 0; i < w->count; i++) {
        struct piece *p = &w->pieces[i];
        uintptr_t shift = (to - p->at) % HUGE;
        if (p->is_huge)
            to += (HUGE - shift) % HUGE;
        else
            to += shift ? 0 : WARM_PAGE;
        p->from = to;
        to += p->size;
    }
    return to;
}

/* Who fails to move a mapping may have lost what was there before. */
static void move_back(const struct piece *p)
{
    void *at = (void *)p->at;
    int rights = PROT_READ | (p->is_code ? PROT_EXEC : PROT_WRITE);
    if (p->is_code && mprotect((void *)p->from, p->size, rights) < 0)
        return;
    if (mremap((void *)p->from, p->size, p->size, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at)
        return;
    if (!map(p->size, at))
        abort();
    memcpy(at, (void *)p->from, p->size);
    if (mprotect(at, p->size, rights) < 0)
        abort();
}

static void gather(struct work *w)
{
    size_t used = (lay_out(w, 0) + HUGE - 1) / HUGE * HUGE;
    size_t most = used + HUGE;
    char *area = w->count ? map(most, NULL) : NULL;
    if (!area)
        return;
    uintptr_t scratch = ((uintptr_t)area + HUGE - 1) / HUGE * HUGE;
    (void)lay_out(w, scratch);
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
    end_run(w);
    gather(w);
    (void)munmap(w, sizeof(*w));
}
