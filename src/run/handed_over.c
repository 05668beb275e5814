/* SPDX-License-Identifier: Apache-2.0 */

/* Hands an engine from hermes-prepare, which registers roots, to the server, which may only ask
 * for boxes. The table is plain memory of the same build on both sides. It says which root of
 * the spawner belongs to which runtime, and what each root contains (the key of the compile
 * cache depends on that). */

#include "run/engine_state.h"

#include "base/alloc.h"
#include "run/image_root.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct table_head {
    uint32_t protocol;
    uint32_t runtime_count;
    uint32_t root_count;
    uint32_t has_seeds;
    uint32_t has_images;
    uint32_t fixed_count; /* roots of images of the operator */
    uint32_t text_size;   /* engine_image_text() */
    struct spawn_reply seal;
};

/* The roots of one runtime, in the order of the registry. */
struct table_runtime {
    int32_t roots[ROOT_KINDS];
};

int engine_write_table(const struct engine *engine, struct buf *to)
{
    const struct image_fixed *fixed;
    const char *text = engine_image_text(engine);
    struct table_head head = {.protocol = SPAWN_PROTOCOL,
        .fixed_count = (uint32_t)image_roots_fixed(engine->images, &fixed),
        .text_size = (uint32_t)strlen(text),
        .runtime_count = (uint32_t)engine->runtimes->count,
        .root_count = (uint32_t)engine->registered_count,
        .has_seeds = engine->has_seeds,
        .has_images = engine->has_images,
        .seal = engine->spawner.seal};
    int r = buf_append(to, &head, sizeof(head));
    for (size_t i = 0; r == 0 && i < engine->runtimes->count; i++) {
        struct table_runtime row;
        memcpy(row.roots, engine->roots[i], sizeof(row.roots));
        r = buf_append(to, &row, sizeof(row));
    }
    for (size_t i = 0; r == 0 && i < engine->registered_count; i++) {
        uint64_t count = engine->registered[i].count;
        r = buf_append(to, &count, sizeof(count));
        if (r == 0)
            r = buf_append(to, engine->registered[i].items, count * sizeof(struct spawn_entry));
    }
    if (r == 0)
        r = buf_append(to, fixed, head.fixed_count * sizeof(*fixed));
    return r < 0 ? r : buf_append(to, text, head.text_size);
}

/* Copies the next bytes of the table; false when the table is too short. */
static bool take(const struct buf *table, size_t *at, void *to, size_t size)
{
    if (size > table->len - *at)
        return false;
    memcpy(to, table->data + *at, size);
    *at += size;
    return true;
}

static bool read_runtimes(struct engine *e, uint32_t count, const struct buf *table, size_t *at)
{
    struct table_runtime row;
    if (count != e->runtimes->count)
        return false;
    e->warm_base_kb = xcalloc(count, sizeof(*e->warm_base_kb));
    e->roots = xcalloc(count, sizeof(*e->roots));
    for (uint32_t i = 0; i < count; i++) {
        if (!take(table, at, &row, sizeof(row)))
            return false;
        memcpy(e->roots[i], row.roots, sizeof(row.roots));
    }
    return true;
}

static bool read_roots(struct engine *e, uint32_t count, const struct buf *table, size_t *at)
{
    for (uint32_t i = 0; i < count; i++) {
        struct root_entries *root = &e->registered[i];
        uint64_t entries;
        if (!take(table, at, &entries, sizeof(entries)) || entries > SPAWN_MAX_ENTRIES)
            return false;
        root_entries_init(root);
        root->items = xcalloc(entries, sizeof(*root->items));
        root->count = entries;
        e->registered_count = i + 1;
        if (!take(table, at, root->items, entries * sizeof(*root->items)))
            return false;
    }
    return true;
}

/* The images of the operator: their roots, and the text about them. */
static bool read_images(
    struct engine *e, const struct table_head *head, const struct buf *table, size_t *at)
{
    struct image_fixed fixed;
    for (uint32_t i = 0; i < head->fixed_count; i++) {
        if (!take(table, at, &fixed, sizeof(fixed)) ||
            !image_roots_add_fixed(e->images, &fixed))
            return false;
    }
    e->image_text = xcalloc(1, (size_t)head->text_size + 1);
    return take(table, at, e->image_text, head->text_size);
}

/* The locks on the places stay with the monitor. */
static void find_seeds(struct engine *e)
{
    e->seeds = xcalloc(e->runtimes->count, sizeof(*e->seeds));
    for (size_t i = 0; i < e->runtimes->count; i++) {
        int root = e->roots[i][ROOT_COMPILE];
        const char *path = root >= 0 && (size_t)root < e->registered_count
                               ? seed_place_of(&e->registered[root])
                               : NULL;
        if (path)
            e->seeds[i].place = (struct seed_place){.path = xstrdup(path), .lock_fd = -EBADF};
    }
}

int engine_attach(struct engine **ret, const struct engine_options *options, int control_fd,
    const struct buf *table, struct err *err)
{
    struct engine *e = xcalloc(1, sizeof(*e));
    struct table_head head;
    size_t at = 0;
    e->runtimes = options->runtimes;
    network_hub_init(&e->network);
    e->maxima = options->maxima;
    e->source_count = options->source_count;
    e->images = image_roots_new();
    e->egress_fd = -1;
    e->egress_pid = -1;
    e->spawner = (struct spawner_client){.control_fd = control_fd, .pid = -1};
    if (!take(table, &at, &head, sizeof(head)) || head.protocol != SPAWN_PROTOCOL ||
        head.root_count > SPAWN_MAX_ROOTS ||
        !read_runtimes(e, head.runtime_count, table, &at) ||
        !read_roots(e, head.root_count, table, &at) || !read_images(e, &head, table, &at)) {
        engine_leave(e);
        return err_set(err, ERR_INTERNAL, EPROTO,
            "hermes-prepare and hermes-server are of different builds; install both anew");
    }
    e->spawner.seal = head.seal;
    e->has_seeds = head.has_seeds;
    e->seed_source = (unsigned)e->source_count;
    e->source_count += e->has_seeds;
    e->has_images = head.has_images;
    e->source_count += e->has_images;
    e->spawner.is_ready = true;
    find_seeds(e);
    engine_open_cache(e, options);
    *ret = e;
    return 0;
}

size_t engine_root_locks(const struct engine *engine, int ret[HANDOVER_MAX_LOCKS])
{
    size_t count = 0;
    for (size_t i = 0; i < engine->runtimes->count && count < SPAWN_MAX_ROOTS; i++) {
        if (engine->seeds[i].place.path)
            ret[count++] = engine->seeds[i].place.lock_fd;
    }
    for (size_t i = 0; i < engine->registered_count; i++) {
        if (engine->registered[i].lock_fd >= 0)
            ret[count++] = engine->registered[i].lock_fd;
    }
    return count;
}

/* Keeps the number of the descriptor, so threads that are about to send on it need no lock. */
int engine_reattach(struct engine *engine, int control_fd)
{
    int r = dup3(control_fd, engine->spawner.control_fd, O_CLOEXEC) < 0 ? -errno : 0;
    (void)close(control_fd);
    return r;
}

bool engine_is_alive(const struct engine *engine)
{
    struct pollfd control = {.fd = engine->spawner.control_fd, .events = POLLRDHUP};
    return poll(&control, 1, 0) == 0;
}
