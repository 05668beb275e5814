/* SPDX-License-Identifier: Apache-2.0 */

/* Taking images out of a store (store.h): by name, by age, by size, and what a crash left. */

#include "image/store_inner.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "image/store_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    UNLOCK_ROUNDS = 50, /* of 10 ms: a released image may stay locked for a moment */
    ORPHAN_TRIES = 5,   /* the same for a layer that no image has */
};

struct name_count {
    const char *id;
    size_t count;
};

static int count_name(struct image_store *store, struct image *image, void *context)
{
    struct name_count *names = context;
    names->count += str_eq(image->id, names->id);
    return 0;
}

static size_t count_names(struct image_store *store, const char *id)
{
    struct name_count names = {.id = id};
    (void)store_walk_all(store, count_name, &names);
    return names.count;
}

/* Ids of images and digests of layers, as the keys of an object. One walk for everything: the
 * store may have thousands. */
struct in_use {
    const char *but; /* not of the image with this id; NULL: of all */
    json_t *keys;
};

static int note_used(struct image_store *store, struct image *image, void *context)
{
    const struct in_use *used = context;
    size_t i;
    json_t *layer;
    if (used->but && str_eq(image->id, used->but))
        return 0;
    (void)json_object_set_new(used->keys, image->id, json_true());
    json_array_foreach(store_layers(store, image->id), i, layer)
    {
        if (json_is_string(layer))
            (void)json_object_set_new(used->keys, json_string_value(layer), json_true());
    }
    return 0;
}

/* The images that have a name, and their layers. The caller owns the object. */
static json_t *find_used(struct image_store *store, const char *but)
{
    struct in_use used = {but, json_object()};
    (void)store_walk_all(store, note_used, &used);
    return used.keys;
}

/* Locks every layer that no other image has. -EWOULDBLOCK: a box uses one. */
static int lock_layers(struct image_store *store, const struct image *image, int *fds,
    char (*names)[DIGEST_HEX + 1], size_t *ret_count)
{
    json_t *others = find_used(store, image->id);
    int r = 0;
    size_t i;
    json_t *layer;
    json_array_foreach(store_layers(store, image->id), i, layer)
    {
        const char *hex = json_string_value(layer);
        if (!hex || strlen(hex) != DIGEST_HEX || i >= SPAWN_MAX_LAYERS ||
            json_object_get(others, hex))
            continue;
        int fd = store_files_lock(store->layers_fd, hex);
        if (fd == -ENOENT)
            continue;
        if (fd < 0) {
            r = fd;
            break;
        }
        fds[*ret_count] = fd;
        memcpy(names[(*ret_count)++], hex, DIGEST_HEX + 1);
    }
    json_decref(others);
    return r;
}

static void discard(struct image_store *store, const char *hex)
{
    char temporary[ID_MAX];
    if (store_files_discard(store->layers_fd, hex, temporary) == 0)
        strv_add(&store->trash, temporary);
}

static int remove_image(struct image_store *store, const struct image *image)
{
    int fds[SPAWN_MAX_LAYERS];
    char names[SPAWN_MAX_LAYERS][DIGEST_HEX + 1];
    size_t count = 0;
    char path[256];
    bool is_last = count_names(store, image->id) <= 1;
    int r = is_last ? lock_layers(store, image, fds, names, &count) : 0;
    (void)snprintf(path, sizeof(path), "names/%s/%s", image->owner, image->name);
    if (r == 0 && unlinkat(store->dir_fd, path, 0) < 0)
        r = -errno;
    if (r == 0 && is_last) {
        (void)snprintf(path, sizeof(path), "images/%s.json", image->id);
        (void)unlinkat(store->dir_fd, path, 0);
        for (size_t i = 0; i < count; i++)
            discard(store, names[i]);
    }
    while (count)
        close_fd(&fds[--count]);
    return r;
}

/* A root that was just let go is unlocked by the spawner a moment later. */
static bool await_unlocking(int round, const struct image_trim *trim)
{
    if (!trim || round >= UNLOCK_ROUNDS)
        return false;
    if (round == 0)
        trim->call(trim->context);
    (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return true;
}

static int delete_once(struct image_store *store, const char *owner, const char *name)
{
    CLEANUP(image_done) struct image image = {0};
    store_enter(store);
    int r = store_look_up(store, owner, name, &image);
    if (r == 0)
        r = remove_image(store, &image);
    store_leave(store);
    return r;
}

/* Others can use the store while this waits: a caller that removes an image that it uses
 * itself would otherwise block all others. */
int image_store_delete(struct image_store *store, const char *owner, const char *name,
    const struct image_trim *trim, struct err *err)
{
    int r = delete_once(store, owner, name);
    for (int i = 0; r == -EWOULDBLOCK && await_unlocking(i, trim); i++)
        r = delete_once(store, owner, name);
    if (r == -ENOENT)
        return store_not_found(err, name);
    if (r == -EWOULDBLOCK)
        return err_set(err, ERR_CONFLICT, EBUSY,
            "the image `%.64s` is in use; end its runs and sessions first", name);
    return r < 0 ? image_store_broken(err, r, name) : 0;
}

static uint64_t layer_bytes(struct image_store *store, const char *hex)
{
    char path[DIGEST_HEX + 8];
    char text[32];
    (void)snprintf(path, sizeof(path), "%s/size", hex);
    return fs_read_small(store->layers_fd, path, text, sizeof(text)) > 0
               ? strtoull(text, NULL, 10)
               : 0;
}

static uint64_t total_bytes(struct image_store *store)
{
    uint64_t bytes = 0;
    cleanup_closedir DIR *dir = store_files_dir(store->layers_fd, ".");
    for (const char *name; dir && (name = store_files_next(dir));)
        bytes += layer_bytes(store, name);
    return bytes;
}

/* When an image was used, in nanoseconds: two small builds can end within a second. */
static int64_t used_ns(struct image_store *store, const char *id)
{
    char path[64];
    struct stat st;
    (void)snprintf(path, sizeof(path), "images/%s.json", id);
    return fstatat(store->dir_fd, path, &st, 0) < 0
               ? 0
               : (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
}

struct cleaning {
    struct image_store *store;
    const struct image_bounds *bounds;
    struct image_gone *gone;
    struct store_list list;
    bool is_patient; /* stops at an image in use, so that the caller can wait for it */
    bool is_blocked; /* it has stopped at an image in use */
};

static void clean_one(struct cleaning *c, struct image *image)
{
    uint64_t before = total_bytes(c->store);
    int r = remove_image(c->store, image);
    c->is_blocked = r == -EWOULDBLOCK && c->is_patient;
    if (c->is_blocked)
        return;
    c->gone->images += r == 0;
    if (r == 0 && c->bounds->told)
        c->bounds->told(c->bounds->context, image);
    c->gone->kept += r == -EWOULDBLOCK;
    c->gone->bytes += before - total_bytes(c->store);
    image->id[0] = '\0';
}

static void clean_old(struct cleaning *c)
{
    for (size_t i = 0; i < c->list.count && !c->is_blocked; i++) {
        struct image *image = &c->list.items[i];
        if (image->created_s < c->bounds->made_before_s &&
            str_has_prefix(image->name, c->bounds->prefix ? c->bounds->prefix : ""))
            clean_one(c, image);
    }
}

/* Notes the bytes of the layers of an image, each once for an owner. Layers that an image for
 * all has, too, do not count. */
static void weigh_image(
    const struct cleaning *c, const struct image *image, json_t *noted, json_t *weights)
{
    bool is_for_all = str_eq(image->owner, IMAGE_FOR_ALL);
    const char *owner = image->owner;
    json_int_t bytes = json_integer_value(json_object_get(weights, owner));
    size_t i;
    json_t *layer;
    json_array_foreach(store_layers(c->store, image->id), i, layer)
    {
        const char *hex = json_string_value(layer);
        cleanup_free char *own = xasprintf("%s %s", owner, hex ? hex : "");
        cleanup_free char *common = xasprintf(IMAGE_FOR_ALL " %s", hex ? hex : "");
        if (!hex || json_object_get(noted, own) ||
            (!is_for_all && json_object_get(noted, common)))
            continue;
        bytes += (json_int_t)layer_bytes(c->store, hex);
        (void)json_object_set_new(noted, own, json_true());
    }
    (void)json_object_set_new(weights, owner, json_integer(bytes));
}

/* The bytes on disk of the images of each owner, by owner. Counts the layers: the size of an
 * image is only the part that it added to another image, which may be gone. */
static json_t *weigh_owners(const struct cleaning *c)
{
    json_t *noted = json_object();
    json_t *weights = json_object();
    for (int round = 0; round < 2; round++) { /* images for all come first */
        for (size_t i = 0; i < c->list.count; i++) {
            const struct image *image = &c->list.items[i];
            if (image->id[0] && str_eq(image->owner, IMAGE_FOR_ALL) == (round == 0))
                weigh_image(c, image, noted, weights);
        }
    }
    json_decref(noted);
    return weights;
}

/* The image to remove next: the least recently used one of the owner with the most bytes. So
 * an owner displaces its own images before those of others. */
static struct image *next_to_go(struct cleaning *c)
{
    struct image *chosen = NULL;
    json_int_t most = 0;
    int64_t oldest_ns = 0;
    json_t *weights = weigh_owners(c);
    for (size_t i = 0; i < c->list.count; i++) {
        struct image *image = &c->list.items[i];
        if (!image->id[0])
            continue;
        json_int_t bytes = json_integer_value(json_object_get(weights, image->owner));
        int64_t at = used_ns(c->store, image->id);
        if (!chosen || bytes > most || (bytes == most && at < oldest_ns)) {
            chosen = image;
            most = bytes;
            oldest_ns = at;
        }
    }
    json_decref(weights);
    return chosen;
}

static void clean_large(struct cleaning *c)
{
    while (!c->is_blocked && total_bytes(c->store) > c->bounds->max_bytes) {
        struct image *image = next_to_go(c);
        if (!image)
            return;
        clean_one(c, image);
    }
}

/* The image without a name that was not used for longest. NULL: there is none. */
static struct image *oldest_anonymous(struct image_store *store, struct store_list *list)
{
    struct image *oldest = NULL;
    for (size_t i = 0; i < list->count; i++) {
        struct image *image = &list->items[i];
        if (image->id[0] && str_eq(image->name, image->id) &&
            (!oldest || used_ns(store, image->id) < used_ns(store, oldest->id)))
            oldest = image;
    }
    return oldest;
}

int store_make_room(struct image_store *store, const char *owner)
{
    struct store_list list = {0};
    struct image *oldest;
    int r = -EWOULDBLOCK;
    (void)store_walk_owner(store, owner, store_list_add, &list);
    while (r == -EWOULDBLOCK && (oldest = oldest_anonymous(store, &list))) {
        r = remove_image(store, oldest);
        oldest->id[0] = '\0'; /* a box uses it: the next one */
    }
    for (size_t i = 0; i < list.count; i++)
        image_done(&list.items[i]);
    free(list.items);
    return r;
}

static void clean_orphan_facts(struct image_store *store, const json_t *used)
{
    cleanup_closedir DIR *images = store_files_dir(store->dir_fd, "images");
    for (const char *name; images && (name = store_files_next(images));) {
        char id[IMAGE_ID_LEN + 1];
        (void)snprintf(id, sizeof(id), "%.*s", IMAGE_ID_LEN, name);
        if (!json_object_get(used, id))
            (void)unlinkat(dirfd(images), name, 0);
    }
    cleanup_closedir DIR *recipes = store_files_dir(store->dir_fd, "recipes");
    for (const char *name; recipes && (name = store_files_next(recipes));) {
        char id[IMAGE_ID_LEN + 2];
        if (fs_read_small(dirfd(recipes), name, id, sizeof(id)) != IMAGE_ID_LEN ||
            !json_object_get(used, id))
            (void)unlinkat(dirfd(recipes), name, 0);
    }
}

/* Layers are remembered for images that are there. */
static void forget_layers(struct image_store *store, const json_t *used)
{
    void *next;
    const char *id;
    json_t *layers;
    json_object_foreach_safe(store->layers, next, id, layers)
    {
        if (!json_object_get(used, id))
            (void)json_object_del(store->layers, id);
    }
}

/* Images that nobody has a name for, and layers that no image has. Returns whether a box still
 * uses one of these. */
static bool clean_orphans(struct image_store *store)
{
    bool is_used = false;
    json_t *used = find_used(store, NULL);
    clean_orphan_facts(store, used);
    forget_layers(store, used);
    cleanup_closedir DIR *layers = store_files_dir(store->layers_fd, ".");
    for (const char *hex; layers && (hex = store_files_next(layers));) {
        cleanup_close int fd =
            json_object_get(used, hex) ? -EBUSY : store_files_lock(store->layers_fd, hex);
        if (fd >= 0)
            discard(store, hex);
        is_used = is_used || fd == -EWOULDBLOCK;
    }
    json_decref(used);
    return is_used;
}

static bool clean_orphans_again(struct image_store *store)
{
    store_enter(store);
    bool is_used = clean_orphans(store);
    store_leave(store);
    return is_used;
}

int64_t image_made_before(uint64_t max_age_days)
{
    return max_age_days ? (int64_t)time(NULL) - (int64_t)max_age_days * 86400 : 0;
}

/* Returns whether a box still uses a layer that no image has. */
static bool clean_pass(struct cleaning *c)
{
    const struct image_bounds *bounds = c->bounds;
    c->list = (struct store_list){0};
    c->is_blocked = false;
    store_enter(c->store);
    if (bounds->owner)
        (void)store_walk_owner(c->store, bounds->owner, store_list_add, &c->list);
    else
        (void)store_walk_all(c->store, store_list_add, &c->list);
    if (bounds->made_before_s)
        clean_old(c);
    if (bounds->max_bytes)
        clean_large(c);
    bool is_used = !c->is_blocked && clean_orphans(c->store);
    store_leave(c->store);
    for (size_t i = 0; i < c->list.count; i++)
        image_done(&c->list.items[i]);
    free(c->list.items);
    return is_used;
}

/* As in image_store_delete(), others can use the store while this waits. */
int image_store_clean(struct image_store *store, const struct image_bounds *bounds,
    const struct image_trim *trim, struct image_gone *ret, struct err *err)
{
    struct image_gone gone = {0};
    struct cleaning c = {.store = store, .bounds = bounds, .gone = &gone};
    bool is_used;
    int round = 0;
    do {
        c.is_patient = trim && round < UNLOCK_ROUNDS;
        is_used = clean_pass(&c);
    } while (c.is_blocked && await_unlocking(round++, trim));
    for (int i = 0; is_used && i < ORPHAN_TRIES && await_unlocking(i, trim); i++)
        is_used = clean_orphans_again(store);
    *ret = gone;
    return 0;
}

/* Removes what a crash left, and images whose layers are gone. */
static int drop_broken(struct image_store *store, struct image *image, void *context)
{
    size_t i;
    json_t *layer;
    char path[256];
    json_array_foreach(store_layers(store, image->id), i, layer)
    {
        const char *hex = json_string_value(layer);
        if (hex && strlen(hex) == DIGEST_HEX && image_store_has_layer(store, hex))
            continue;
        log_event(LOG_WARN, "an image is dropped because a layer is gone", "image", image->id,
            (char *)NULL);
        (void)snprintf(path, sizeof(path), "names/%s/%s", image->owner, image->name);
        (void)unlinkat(store->dir_fd, path, 0);
        return 0;
    }
    return 0;
}

/* Whether another process builds or imports an image (image_build_turn()). */
static bool is_building(const struct image_store *store)
{
    cleanup_close int fd = openat(store->dir_fd, IMAGE_TURN, O_RDWR | O_CLOEXEC);
    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;
}

/* Files of a running import stay in the spool, however old they look. */
void store_sweep(struct image_store *store)
{
    store_enter(store);
    for (size_t i = 0; store_parts[i]; i++) {
        if (!str_eq(store_parts[i], "spool") || !is_building(store))
            store_files_sweep(store->dir_fd, store_parts[i]);
    }
    (void)store_walk_all(store, drop_broken, NULL);
    (void)clean_orphans(store);
    store_leave(store);
}
