/* SPDX-License-Identifier: Apache-2.0 */

/* See image_transfer.h. */

#include "service/image_transfer.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/id.h"
#include "base/ledger.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "image/import.h"
#include "service/build_queue.h"
#include "session/session.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 256 << 10 };

struct image_transfer {
    struct state *state;
    int owner;
    int fd; /* the archive */
    uint64_t bytes;
    uint64_t max_bytes;
    struct purse purse; /* its bytes in the ledger of all archives */
    char *name;
    char *wanted;
    const struct runtime *runtime;
};

void service_transfer_done(struct image_transfer *t)
{
    if (!t)
        return;
    purse_close(&t->purse);
    close_fd(&t->fd);
    free(t->name);
    free(t->wanted);
    free(t);
}

static struct image_transfer *transfer_new(struct state *state, int owner)
{
    struct image_transfer *t = xcalloc(1, sizeof(*t));
    *t = (struct image_transfer){.state = state, .owner = owner, .fd = -1};
    purse_open(&t->purse, state->spools, owner);
    return t;
}

static int no_room(struct err *err)
{
    return err_set(err, ERR_NO_SPACE, ENOSPC,
        "archives of images that are on their way take as much as image_store_mb allows; try "
        "again later, or ask the operator");
}

static int too_large(const struct image_transfer *t, struct err *err)
{
    return err_set(err, ERR_TOO_LARGE, EFBIG,
        "the archive is larger than %llu MiB, the setting build_disk_mb",
        (unsigned long long)(t->max_bytes >> 20));
}

/* --- import */

static struct run_limits import_limits(const struct state *state)
{
    const struct config *c = &state->config;
    return image_build_limits(c->build_wall_ms, c->build_memory_mb, c->build_disk_mb);
}

static int find_language(
    const struct state *state, const char *name, const struct runtime **ret, struct err *err)
{
    *ret = name ? runtime_find(&state->runtimes, name) : NULL;
    if (!name)
        return 0;
    if (!*ret)
        return err_field(
            err, "language", "unknown language `%.64s`; GET /v1/runtimes lists them", name);
    return (*ret)->run.has_images ? 0
                                  : err_field(err, "language",
                                        "language `%s` does not support images", (*ret)->name);
}

int service_import_begin(struct state *state, int owner, const struct image_import_request *req,
    struct image_transfer **ret, struct err *err)
{
    const char *why = req->name ? image_name_problem(req->name) : NULL;
    const struct runtime *runtime = NULL;
    int r = service_images_check(state, err);
    if (r == 0 && why)
        r = err_field(err, "name", "%s", why);
    if (r == 0)
        r = find_language(state, req->language, &runtime, err);
    if (r < 0)
        return r;
    struct image_transfer *t = transfer_new(state, owner);
    t->max_bytes = import_limits(state).disk_mb << 20;
    t->name = req->name ? xstrdup(req->name) : NULL;
    t->wanted = req->wanted ? xstrdup(req->wanted) : NULL;
    t->runtime = runtime;
    if (req->size > t->max_bytes)
        r = too_large(t, err);
    else
        r = t->fd = image_spool_open(state->images, err);
    if (r < 0) {
        service_transfer_done(t);
        return r;
    }
    *ret = t;
    return 0;
}

int service_import_write(
    struct image_transfer *t, const char *data, size_t len, struct err *err)
{
    if (len > t->max_bytes - t->bytes)
        return too_large(t, err);
    if (!purse_take(&t->purse, len))
        return no_room(err);
    t->bytes += len;
    int r = fs_write_all(t->fd, data, len);
    return r < 0 ? err_set(err, r == -ENOSPC ? ERR_NO_SPACE : err_code_of(-r), -r,
                       "cannot keep the archive in the image store: %s", strerror(-r))
                 : 0;
}

static int import(struct image_transfer *t, const struct image_builder *builder,
    struct image *ret, struct err *err)
{
    struct state *state = t->state;
    const struct image_import from = {.name = t->name,
        .runtime = t->runtime,
        .wanted = t->wanted,
        .archive_fd = t->fd,
        .runtimes = &state->runtimes};
    int r = state_wait_for_spawner(state, builder->cancel_fd, err);
    if (r == 0)
        r = image_import(builder, &from, ret, err);
    return r < 0 ? r : service_image_fit(state, builder, ret, err);
}

/* One box at a time: hermes-layer, or the interpreter of the image. */
static int import_admitted(struct image_transfer *t, const struct image_builder *builder,
    struct image *ret, struct err *err)
{
    struct state *state = t->state;
    struct admit_ticket ticket;
    const struct run_limits limits = import_limits(state);
    struct run_limits probe = image_probe_limits();
    limits_cap(&probe, engine_maxima(state->engine));
    const struct box_need one = limits_need(&probe);
    int r =
        service_image_admit(state, t->owner, &one, builder->cancel_fd, "import", &ticket, err);
    if (r < 0)
        return r;
    double cpu_ms = 0;
    struct image_builder admitted = *builder;
    admitted.limits = &limits;
    admitted.cpu_ms = &cpu_ms;
    r = import(t, &admitted, ret, err);
    admit_leave(state->admit, &ticket, cpu_ms);
    return r;
}

int service_import_finish(
    struct image_transfer *t, int cancel_fd, struct image *ret, struct err *err)
{
    const struct service_log log = {.cancel_fd = cancel_fd};
    struct image_builder builder = service_image_builder(t->state, t->owner, &log);
    char id[ID_MAX];
    id_make("import_", id); /* equal to no other build */
    struct build_call call = {.owner = t->owner, .recipe = id};
    if (!t->bytes)
        return err_set(err, ERR_INVALID, EINVAL, "the body is empty; send the archive as body");
    int r = service_image_check_tool(&builder, err);
    if (r == 0)
        r = build_queue_enter(t->state->builds, &call, cancel_fd, err);
    if (r != BUILD_TURN)
        return r;
    cleanup_close int turn = image_build_turn(t->state->images, cancel_fd, err);
    r = turn < 0 ? turn : import_admitted(t, &builder, ret, err);
    build_queue_leave(t->state->builds, &call, r, err);
    return r;
}

/* --- export */

static int take_archive(void *context, const void *data, size_t len)
{
    struct image_transfer *t = context;
    if (!purse_take(&t->purse, len))
        return -EDQUOT;
    t->bytes += len;
    return fs_write_all(t->fd, data, len);
}

/* Packing takes a processor, so one archive of a key is packed at a time. */
static int take_place(struct state *state, int owner, struct err *err)
{
    int *place = NULL;
    bool has_own = false;
    (void)pthread_mutex_lock(&state->board.lock);
    for (size_t i = 0; i < STATE_EXPORTS_MAX; i++) {
        has_own = has_own || state->exporting[i] == owner + 2;
        if (!state->exporting[i])
            place = &state->exporting[i];
    }
    if (place && !has_own)
        *place = owner + 2;
    (void)pthread_mutex_unlock(&state->board.lock);
    return place && !has_own
               ? 0
               : err_retry(err,
                     err_set(err, ERR_BUSY, EBUSY,
                         "another export is being packed; try again when it has ended"),
                     10);
}

static void leave_place(struct state *state, int owner)
{
    (void)pthread_mutex_lock(&state->board.lock);
    for (size_t i = 0; i < STATE_EXPORTS_MAX; i++) {
        if (state->exporting[i] == owner + 2)
            state->exporting[i] = 0;
    }
    (void)pthread_mutex_unlock(&state->board.lock);
}

static int pack(struct image_transfer *t, const struct image *image,
    const struct image_export *options, struct err *err)
{
    uint64_t size = (uint64_t)json_integer_value(json_object_get(image->facts, "size_bytes"));
    if (!purse_take(&t->purse, size)) /* packed layers, before they are in the archive */
        return no_room(err);
    t->fd = image_spool_open(t->state->images, err);
    int r = t->fd < 0 ? t->fd
                      : image_export(t->state->images, image, options, take_archive, t, err);
    purse_give(&t->purse, size);
    return r == -EDQUOT ? no_room(err) : r;
}

int service_export(struct state *state, int owner, const char *name,
    const struct image_export *options, struct image_transfer **ret, uint64_t *ret_size,
    struct err *err)
{
    CLEANUP(image_done) struct image image = {0};
    int r = service_images_check(state, err);
    if (r == 0)
        r = image_store_find(
            state->images, service_image_scope(state, owner, name), name, &image, err);
    if (r == 0)
        r = take_place(state, owner, err);
    if (r < 0)
        return r;
    struct image_transfer *t = transfer_new(state, owner);
    r = pack(t, &image, options, err);
    leave_place(state, owner);
    if (r == 0 && lseek(t->fd, 0, SEEK_SET) < 0)
        r = err_set(err, ERR_INTERNAL, errno, "cannot read the archive: %s", strerror(errno));
    if (r < 0) {
        service_transfer_done(t);
        return r;
    }
    *ret_size = t->bytes;
    *ret = t;
    return 0;
}

int service_export_read(struct image_transfer *t, struct buf *to)
{
    cleanup_free char *piece = xmalloc(PIECE);
    ssize_t n = read(t->fd, piece, PIECE);
    if (n <= 0)
        return n < 0 ? -errno : 0;
    int r = buf_append(to, piece, (size_t)n);
    return r < 0 ? r : 1;
}
