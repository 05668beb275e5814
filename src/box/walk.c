/* SPDX-License-Identifier: Apache-2.0 */

/* See walk.h. Uses a stack of open directories instead of recursion; the size of the stack
 * bounds the depth. */

#include "box/walk.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

struct level {
    DIR *dir;
    size_t name_at; /* offset of its name in the path */
    size_t end;     /* end of its path */
};

static bool is_over(const struct walk *walk)
{
    return walk->seen >= walk->max_entries ||
           (walk->until_ms && walk->seen % 64 == 0 && clock_ms() >= walk->until_ms);
}

/* Appends the entry's name to the path of its directory; *ret_at is its offset. False when it
 * does not fit. */
static bool append_name(struct walk *walk, size_t end, const char *name, size_t *ret_at)
{
    size_t at = end ? end + 1 : 0;
    size_t len = strlen(name);
    if (at + len >= sizeof(walk->path))
        return false;
    if (end)
        walk->path[end] = '/';
    memcpy(walk->path + at, name, len + 1);
    *ret_at = at;
    return true;
}

/* NULL when it is not a directory, or not any more. */
static DIR *open_below(DIR *above, const char *name)
{
    int fd = openat(
        dirfd(above), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        close_fd(&fd);
    return dir;
}

/* Handles one entry; goes down into a directory. */
static int step(struct walk *walk, struct level *levels, unsigned *depth, struct dirent *e)
{
    const struct level *level = &levels[*depth - 1];
    size_t at;
    if (str_eq(e->d_name, ".") || str_eq(e->d_name, ".."))
        return 0;
    walk->seen++;
    if (!append_name(walk, level->end, e->d_name, &at)) {
        walk->cut = true;
        return 0;
    }
    int r = walk->entry(walk, dirfd(level->dir), e->d_name, e->d_type);
    if (r != 0 || e->d_type != DT_DIR || walk->max_depth == 1)
        return r == WALK_SKIP ? 0 : r;
    DIR *dir = *depth < walk->max_depth ? open_below(level->dir, e->d_name) : NULL;
    if (!dir) {
        walk->cut = true;
        return 0;
    }
    levels[(*depth)++] =
        (struct level){.dir = dir, .name_at = at, .end = at + strlen(e->d_name)};
    return 0;
}

/* Goes up one level. */
static int leave(struct walk *walk, struct level *levels, unsigned *depth)
{
    struct level level = levels[--*depth];
    (void)closedir(level.dir);
    walk->path[level.end] = '\0';
    if (*depth == 0 || !walk->leave)
        return 0;
    return walk->leave(walk, dirfd(levels[*depth - 1].dir), walk->path + level.name_at, DT_DIR);
}

int walk_tree(struct walk *walk, int dir_fd)
{
    struct level levels[WALK_MAX_DEPTH];
    unsigned depth = 1;
    int r = 0;
    levels[0] = (struct level){.dir = fdopendir(dir_fd)};
    if (!levels[0].dir) {
        r = -errno;
        close_fd(&dir_fd);
        return r;
    }
    if (walk->max_depth == 0 || walk->max_depth > WALK_MAX_DEPTH)
        walk->max_depth = WALK_MAX_DEPTH;
    while (depth > 0 && r == 0) {
        struct dirent *e = readdir(levels[depth - 1].dir);
        if (e && is_over(walk)) {
            walk->cut = true;
            break;
        }
        r = e ? step(walk, levels, &depth, e) : leave(walk, levels, &depth);
    }
    while (depth > 0)
        (void)closedir(levels[--depth].dir);
    return r;
}
