/* SPDX-License-Identifier: Apache-2.0 */

/* Hands an engine from hermes-prepare, which registers roots, to the server, which may only ask
 * for boxes. The table is plain memory of the same build on both sides. It says which root of
 * the spawner belongs to which runtime, and what each root contains (the key of the compile
 * cache depends on that). */

#include "run/engine_state.h"

#include "base/alloc.h"

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
    uint32_t reserved;
    struct spawn_reply seal;
};

/* The roots of one runtime, in the order of the registry. */
struct table_runtime {
    int32_t roots[ROOT_KINDS];
};

int engine_write_table(const struct engine *engine, struct buf *to)
{
    struct table_head head = {.protocol = SPAWN_PROTOCOL,
        .runtime_count = (uint32_t)engine->runtimes->count,
        .root_count = (uint32_t)engine->registered_count,
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
    return r;
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

int engine_attach(struct engine **ret, const struct engine_options *options, int control_fd,
    const struct buf *table, struct err *err)
{
    struct engine *e = xcalloc(1, sizeof(*e));
    struct table_head head;
    size_t at = 0;
    e->runtimes = options->runtimes;
    e->maxima = options->maxima;
    e->source_count = options->source_count;
    e->spawner = (struct spawner_client){.control_fd = control_fd, .pid = -1};
    if (!take(table, &at, &head, sizeof(head)) || head.protocol != SPAWN_PROTOCOL ||
        head.root_count > SPAWN_MAX_ROOTS ||
        !read_runtimes(e, head.runtime_count, table, &at) ||
        !read_roots(e, head.root_count, table, &at)) {
        engine_leave(e);
        return err_set(err, ERR_INTERNAL, EPROTO,
            "hermes-prepare and hermes-server are of different builds; install both anew");
    }
    e->spawner.seal = head.seal;
    e->spawner.is_ready = true;
    engine_open_cache(e, options);
    *ret = e;
    return 0;
}

size_t engine_root_locks(const struct engine *engine, int ret[SPAWN_MAX_ROOTS])
{
    size_t count = 0;
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
