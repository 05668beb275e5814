/* SPDX-License-Identifier: Apache-2.0 */

/* See image_root.h. When the spawner has died, the sockets of its roots tell so, and the roots
 * are made again. */

#include "run/image_root.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "run/engine_state.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Roots in use that one key has made, so that it leaves some for the others. */
enum { OWNER_MAX = SPAWN_MAX_IMAGES * 3 / 4 };

struct image_root {
    struct image_roots *all;
    struct spawn_image key; /* which root and layers */
    uint32_t number;
    uint32_t owner; /* owner of the first box; 0: no key */
    int socket;     /* -1: this place is free */
    unsigned users;
    uint64_t used_at; /* larger: later */
    bool is_warm;     /* a root of the table, with a zygote */
};

enum { FIXED_MAX = 2 * ENGINE_IMAGES_MAX };

struct image_roots {
    pthread_mutex_t lock;
    struct image_fixed fixed[FIXED_MAX]; /* complete before the first box */
    struct image_root fixed_roots[FIXED_MAX];
    size_t fixed_count;
    uint64_t clock;
    struct image_root items[SPAWN_MAX_IMAGES];
};

struct image_roots *image_roots_new(void)
{
    struct image_roots *roots = xcalloc(1, sizeof(*roots));
    (void)pthread_mutex_init(&roots->lock, NULL);
    for (size_t i = 0; i < SPAWN_MAX_IMAGES; i++) {
        roots->items[i].all = roots;
        roots->items[i].socket = -1;
    }
    return roots;
}

void image_roots_free(struct image_roots *roots)
{
    for (size_t i = 0; roots && i < SPAWN_MAX_IMAGES; i++)
        close_fd(&roots->items[i].socket);
    if (roots)
        (void)pthread_mutex_destroy(&roots->lock);
    free(roots);
}

void image_root_key(struct spawn_image *key, unsigned base, const struct run_image *image)
{
    *key = (struct spawn_image){.kind = SPAWN_IMAGE, .root = base, .count = image->count};
    memcpy(key->layers, image->layers, image->count * sizeof(key->layers[0]));
}

bool image_roots_add_fixed(struct image_roots *roots, const struct image_fixed *fixed)
{
    if (roots->fixed_count == FIXED_MAX)
        return false;
    roots->fixed[roots->fixed_count] = *fixed;
    roots->fixed_roots[roots->fixed_count++] = (struct image_root){
        .all = roots, .number = fixed->number, .is_warm = fixed->is_warm, .socket = -1};
    return true;
}

void image_roots_fix(struct image_roots *roots, unsigned base, const struct run_image *image,
    unsigned number, bool is_warm)
{
    struct image_fixed fixed = {.number = number, .is_warm = is_warm};
    image_root_key(&fixed.key, base, image);
    (void)image_roots_add_fixed(roots, &fixed);
}

size_t image_roots_fixed(const struct image_roots *roots, const struct image_fixed **ret)
{
    *ret = roots->fixed;
    return roots->fixed_count;
}

bool image_roots_has_warm(const struct image_roots *roots, const struct run_image *image)
{
    struct spawn_image key;
    bool found = false;
    for (size_t i = 0; i < roots->fixed_count; i++) {
        image_root_key(&key, roots->fixed[i].key.root, image);
        found = found || (!image->is_whole && roots->fixed[i].is_warm &&
                             memcmp(&key, &roots->fixed[i].key, sizeof(key)) == 0);
    }
    return found;
}

/* The spawner never sends more than its answer, so anything to read is the end. */
static bool is_dead(const struct image_root *root)
{
    struct pollfd fd = {.fd = root->socket, .events = POLLIN};
    return poll(&fd, 1, 0) != 0;
}

static struct image_root *find(struct image_roots *all, const struct spawn_image *key)
{
    for (size_t i = 0; i < all->fixed_count; i++) {
        if (memcmp(&all->fixed[i].key, key, sizeof(*key)) == 0)
            return &all->fixed_roots[i];
    }
    for (size_t i = 0; i < SPAWN_MAX_IMAGES; i++) {
        struct image_root *root = &all->items[i];
        if (root->socket >= 0 && memcmp(&root->key, key, sizeof(*key)) == 0 && !is_dead(root))
            return root;
    }
    return NULL;
}

/* A free place, or that of the root that was used least recently. NULL: all are in use. */
static struct image_root *make_room(struct image_roots *all)
{
    struct image_root *oldest = NULL;
    for (size_t i = 0; i < SPAWN_MAX_IMAGES; i++) {
        struct image_root *root = &all->items[i];
        if (root->users)
            continue;
        if (root->socket < 0)
            return root;
        if (!oldest || root->used_at < oldest->used_at)
            oldest = root;
    }
    if (oldest)
        close_fd(&oldest->socket);
    return oldest;
}

static int explain(const struct run_image *image, int r, struct err *err)
{
    if (err->code)
        return r;
    if (r == -ENOENT || r == -EWOULDBLOCK)
        return err_set(err, ERR_NOT_FOUND, -r, "the image %s was removed", image->id);
    if (r == -EOPNOTSUPP)
        return err_set(err, ERR_UNSUPPORTED, -r,
            "images need root: without it the layers of an image cannot be mounted");
    return err_set(err, err_code_of(-r), -r, "cannot mount the layers of the image %s: %s",
        image->id, strerror(-r));
}

static size_t count_used(const struct image_roots *all, uint32_t owner)
{
    size_t count = 0;
    for (size_t i = 0; i < SPAWN_MAX_IMAGES; i++)
        count += all->items[i].users && all->items[i].owner == owner;
    return count;
}

static int make(struct engine *engine, const struct spawn_image *key, struct image_root **ret,
    struct err *err)
{
    struct image_root *root = make_room(engine->images);
    if (!root)
        return err_set(err, ERR_BUSY, EBUSY,
            "%d images are in use at the same time; try again later", SPAWN_MAX_IMAGES);
    int r = spawner_image(&engine->spawner, key, &root->socket, &root->number, err);
    if (r < 0)
        return r;
    root->key = *key;
    *ret = root;
    return 0;
}

/* The root that the layers lie on, or below. */
static int base_of(const struct engine *engine, const struct image_use *use)
{
    size_t index = (size_t)(use->runtime - engine->runtimes->items);
    return use->image->is_whole ? engine->roots[index][ROOT_WHOLE] : (int)use->base;
}

int image_root_take(struct engine *engine, const struct image_use *use, struct image_root **ret,
    struct err *err)
{
    struct image_roots *all = engine->images;
    const struct run_image *image = use->image;
    uint32_t owner = use->owner;
    int base = base_of(engine, use);
    if (base < 0)
        return err_set(err, ERR_UNSUPPORTED, ENOSYS,
            "the image %s is a whole root, which this server can use for %s only after a "
            "restart",
            image->id, use->runtime->name);
    struct spawn_image key;
    image_root_key(&key, (unsigned)base, image);
    if (image->is_whole)
        key.flags = use->is_top ? IMAGE_WHOLE | IMAGE_TOP : IMAGE_WHOLE;
    int r = spawner_ready(&engine->spawner, err);
    if (r < 0)
        return r;
    *err = (struct err){0};
    (void)pthread_mutex_lock(&all->lock);
    struct image_root *root = find(all, &key);
    bool is_fixed = root && root->socket < 0;
    if (owner && !is_fixed && !(root && root->users) && count_used(all, owner) >= OWNER_MAX)
        r = err_set(err, ERR_BUSY, EBUSY,
            "%d images of yours are in use at the same time; end some sessions", OWNER_MAX);
    else if (!root)
        r = make(engine, &key, &root, err);
    if (r == 0 && root) {
        root->owner = root->users ? root->owner : owner;
        root->users++;
        root->used_at = ++all->clock;
        *ret = root;
    }
    (void)pthread_mutex_unlock(&all->lock);
    return r < 0 ? explain(image, r, err) : 0;
}

unsigned image_root_number(const struct image_root *root)
{
    return root->number;
}

bool image_root_is_warm(const struct image_root *root)
{
    return root && root->is_warm;
}

struct image_root *image_root_share(struct image_root *root)
{
    if (root) {
        (void)pthread_mutex_lock(&root->all->lock);
        root->users++;
        (void)pthread_mutex_unlock(&root->all->lock);
    }
    return root;
}

void image_root_give(struct image_root *root)
{
    if (!root)
        return;
    (void)pthread_mutex_lock(&root->all->lock);
    root->users--;
    (void)pthread_mutex_unlock(&root->all->lock);
}

void image_roots_trim(struct engine *engine)
{
    struct image_roots *all = engine->images;
    (void)pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < SPAWN_MAX_IMAGES; i++) {
        if (!all->items[i].users)
            close_fd(&all->items[i].socket);
    }
    (void)pthread_mutex_unlock(&all->lock);
}
