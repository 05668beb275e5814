/* SPDX-License-Identifier: Apache-2.0 */

/* See store.h: finding and adding images; store_remove.c takes them away. One mutex and one
 * flock cover every change, so that two processes on one directory do no harm either. */

#include "image/store_inner.h"

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "image/store_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    FACTS_MAX = 4 << 20, /* bytes of an image's JSON */
    TOUCH_S = 3600,      /* a use is noted once in this time */
    FIND_TRIES = 4,      /* of a name that gets other images meanwhile */
};

void image_done(struct image *image)
{
    json_decref(image->facts);
    *image = (struct image){0};
}

int image_store_dir(const struct image_store *store)
{
    return store->dir_fd;
}

void store_enter(struct image_store *store)
{
    (void)pthread_mutex_lock(&store->lock);
    while (flock(store->lock_fd, LOCK_EX) < 0 && errno == EINTR)
        ;
}

/* Trees are removed after the lock is given back: that can take long, and their new names
 * are never looked up. */
void store_leave(struct image_store *store)
{
    CLEANUP(strv_done) struct strv trash = store->trash;
    store->trash = (struct strv){0};
    (void)flock(store->lock_fd, LOCK_UN);
    (void)pthread_mutex_unlock(&store->lock);
    for (size_t i = 0; i < trash.count; i++)
        (void)fs_remove_tree(store->layers_fd, trash.items[i]);
}

int image_store_broken(struct err *err, int r, const char *what)
{
    return err_set(err, r == -ENOSPC || r == -EDQUOT ? ERR_NO_SPACE : err_code_of(-r), -r,
        "%s in the image store: %s", what, strerror(-r));
}

const char *image_name_problem(const char *name)
{
    size_t len = strlen(name);
    if (len == 0 || len > IMAGE_NAME_MAX)
        return "a name of an image has 1 to 64 characters";
    if (str_eq(name, "import"))
        return "no image is called import: that is a route";
    if (str_has_prefix(name, "img_"))
        return "a name of an image does not begin with img_, as ids do";
    if (strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-") !=
            len ||
        strchr("._:-", name[0]))
        return "a name of an image has letters, digits and . _ : - and begins with a letter or "
               "a digit";
    return NULL;
}

static int read_facts(struct image_store *store, const char *id, json_t **ret)
{
    char path[64];
    cleanup_buf struct buf text;
    buf_init(&text, FACTS_MAX);
    (void)snprintf(path, sizeof(path), "images/%s.json", id);
    int r = fs_read_file(store->dir_fd, path, &text);
    if (r < 0)
        return r;
    *ret = json_loadb(text.data ? text.data : "", text.len, JSON_REJECT_DUPLICATES, NULL);
    return *ret ? 0 : -EBADMSG;
}

int image_store_facts(struct image_store *store, struct image *image)
{
    json_t *facts = NULL;
    int r = read_facts(store, image->id, &facts);
    if (r < 0)
        return r;
    json_decref(image->facts);
    image->facts = facts;
    return 0;
}

const json_t *store_layers(struct image_store *store, const char *id)
{
    json_t *layers = json_object_get(store->layers, id);
    json_t *facts = NULL;
    if (layers || read_facts(store, id, &facts) < 0)
        return layers;
    layers = json_incref(json_object_get(facts, "layers"));
    (void)json_object_set_new(store->layers, id, layers ? layers : json_array());
    json_decref(facts);
    return json_object_get(store->layers, id);
}

/* Reads one name, without the facts. -ENOENT when it leads nowhere. */
static int read_name(
    struct image_store *store, const char *owner, const char *name, struct image *ret)
{
    struct image image = {0};
    char path[256];
    char id[IMAGE_ID_LEN + 2];
    struct stat st;
    (void)snprintf(path, sizeof(path), "names/%s/%s", owner, name);
    ssize_t n = fs_read_small(store->dir_fd, path, id, sizeof(id));
    if (n < 0 || fstatat(store->dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return n < 0 ? (int)n : -errno;
    if (n != IMAGE_ID_LEN || !str_has_prefix(id, "img_") || strchr(id, '/'))
        return -ENOENT;
    memcpy(image.id, id, sizeof(image.id));
    (void)snprintf(image.name, sizeof(image.name), "%s", name);
    (void)snprintf(image.owner, sizeof(image.owner), "%s", owner);
    image.created_s = st.st_mtim.tv_sec;
    *ret = image;
    return 0;
}

/* Calls `see` for every image that owner has a name for, until it returns other than 0. */
int store_walk_owner(struct image_store *store, const char *owner,
    int (*see)(struct image_store *store, struct image *image, void *context), void *context)
{
    cleanup_free char *path = xasprintf("names/%s", owner);
    cleanup_closedir DIR *dir = store_files_dir(store->dir_fd, path);
    int r = 0;
    for (const char *name; r == 0 && dir && (name = store_files_next(dir));) {
        CLEANUP(image_done) struct image image = {0};
        if (read_name(store, owner, name, &image) == 0)
            r = see(store, &image, context);
    }
    return r;
}

int store_walk_all(struct image_store *store,
    int (*see)(struct image_store *store, struct image *image, void *context), void *context)
{
    cleanup_closedir DIR *dir = store_files_dir(store->dir_fd, "names");
    int r = 0;
    for (const char *owner; r == 0 && dir && (owner = store_files_next(dir));)
        r = store_walk_owner(store, owner, see, context);
    return r;
}

struct search {
    const char *id;
    struct image *found;
};

static int match_id(struct image_store *store, struct image *image, void *context)
{
    struct search *search = context;
    if (!str_eq(image->id, search->id))
        return 0;
    *search->found = *image;
    *image = (struct image){0};
    return 1;
}

int store_look_up(
    struct image_store *store, const char *owner, const char *name, struct image *ret)
{
    struct search search = {name, ret};
    if (!owner)
        return store_walk_all(store, match_id, &search) == 1 ? 0 : -ENOENT;
    if (str_has_prefix(name, "img_"))
        return store_walk_owner(store, owner, match_id, &search) == 1 ? 0 : -ENOENT;
    return image_name_problem(name) ? -ENOENT : read_name(store, owner, name, ret);
}

static int look_up_visible(
    struct image_store *store, const char *owner, const char *name, struct image *ret)
{
    int r = store_look_up(store, owner, name, ret);
    return r == -ENOENT ? store_look_up(store, IMAGE_FOR_ALL, name, ret) : r;
}

int store_not_found(struct err *err, const char *name)
{
    return err_set(err, ERR_NOT_FOUND, ENOENT,
        "there is no image `%.64s`; `hermes image ls` and GET /v1/images list yours", name);
}

/* The time of the JSON is that of the last use. */
static void touch(struct image_store *store, const char *id)
{
    char path[64];
    struct stat st;
    (void)snprintf(path, sizeof(path), "images/%s.json", id);
    if (fstatat(store->dir_fd, path, &st, 0) == 0 && time(NULL) - st.st_mtim.tv_sec > TOUCH_S)
        (void)utimensat(store->dir_fd, path, NULL, 0);
}

/* The facts are read without the lock: they can be long, and others wait for it. A name that
 * got another image meanwhile is looked up again. */
int image_store_find(struct image_store *store, const char *owner, const char *name,
    struct image *ret, struct err *err)
{
    struct image image = {0};
    bool is_named = true;
    int r = -ENOENT;
    for (int i = 0; r == -ENOENT && is_named && i < FIND_TRIES; i++) {
        store_enter(store);
        r = look_up_visible(store, owner, name, &image);
        is_named = r == 0;
        if (is_named)
            touch(store, image.id);
        store_leave(store);
        if (is_named)
            r = image_store_facts(store, &image);
    }
    if (r < 0)
        return r == -ENOENT ? store_not_found(err, name) : image_store_broken(err, r, name);
    *ret = image;
    return 0;
}

int store_list_add(struct image_store *store, struct image *image, void *context)
{
    struct store_list *list = context;
    list->items = xreallocarray(list->items, list->count + 1, sizeof(*list->items));
    list->items[list->count++] = *image;
    *image = (struct image){0};
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    const struct image *x = a;
    const struct image *y = b;
    int order = strcmp(x->owner, y->owner);
    return order ? order : strcmp(x->name, y->name);
}

int image_store_list(struct image_store *store, const char *owner, struct image **ret,
    size_t *ret_count, struct err *err)
{
    struct store_list list = {0};
    store_enter(store);
    if (!owner) {
        (void)store_walk_all(store, store_list_add, &list);
    } else {
        (void)store_walk_owner(store, owner, store_list_add, &list);
        if (!str_eq(owner, IMAGE_FOR_ALL))
            (void)store_walk_owner(store, IMAGE_FOR_ALL, store_list_add, &list);
    }
    store_leave(store);
    if (list.count)
        qsort(list.items, list.count, sizeof(*list.items), compare_names);
    *ret = list.items;
    *ret_count = list.count;
    return 0;
}

int image_store_has_layer(struct image_store *store, const char hex[DIGEST_HEX + 1])
{
    char path[DIGEST_HEX + 8];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/tree", hex);
    return fstatat(store->layers_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

int image_store_keep_layer(
    struct image_store *store, const char hex[DIGEST_HEX + 1], uint64_t bytes, struct err *err)
{
    char text[32];
    char temporary[ID_MAX];
    (void)snprintf(text, sizeof(text), "%llu\n", (unsigned long long)bytes);
    int r = store_files_stage_layer(store->dir_fd, store->layers_fd, text, temporary);
    if (r < 0)
        return image_store_broken(err, r, "cannot keep a layer");
    store_enter(store);
    if (image_store_has_layer(store, hex))
        strv_add(&store->trash, temporary);
    else
        r = store_files_name_layer(store->layers_fd, temporary, hex);
    int fd = r < 0 ? r : store_files_share(store->layers_fd, hex);
    if (r < 0)
        strv_add(&store->trash, temporary);
    store_leave(store);
    return fd < 0 ? image_store_broken(err, fd, "cannot keep a layer") : fd;
}

int image_store_hold_layer(
    struct image_store *store, const char hex[DIGEST_HEX + 1], struct err *err)
{
    store_enter(store);
    int fd = store_files_share(store->layers_fd, hex);
    store_leave(store);
    return fd < 0 ? image_store_broken(err, fd, "cannot hold a layer") : fd;
}

/* Whether an owner may have one more name. */
static bool has_room(struct image_store *store, const char *dir, const char *name)
{
    size_t count = 0;
    struct stat st;
    cleanup_closedir DIR *names = store_files_dir(store->dir_fd, dir);
    while (names && store_files_next(names))
        count++;
    return count < IMAGE_NAMES_MAX ||
           fstatat(dirfd(names), name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int put_name(
    struct image_store *store, const char *owner, const char *name, const char *id)
{
    cleanup_free char *dir = xasprintf("names/%s", owner);
    cleanup_free char *text = xasprintf("%s\n", id);
    int r = has_room(store, dir, name) ? fs_mkdirs(store->dir_fd, dir, 0700) : -EDQUOT;
    return r < 0 ? r : store_files_write(store->dir_fd, dir, name, text, strlen(text));
}

/* The id of an image is the first half of the SHA-256 of its facts. */
static char *make_id(const json_t *facts, char id[IMAGE_ID_LEN + 1])
{
    char *text = json_dumps(facts, JSON_COMPACT | JSON_SORT_KEYS);
    struct sha256_ctx ctx;
    uint8_t digest[SPAWN_DIGEST];
    if (!text)
        return NULL;
    sha256_init(&ctx);
    sha256_update(&ctx, strlen(text), (const uint8_t *)text);
    sha256_digest(&ctx, sizeof(digest), digest);
    memcpy(id, "img_", 5);
    str_hex(digest, 16, id + 4);
    return text;
}

static int not_kept(struct err *err, int r)
{
    if (r == -EDQUOT)
        return err_set(err, ERR_NO_SPACE, EDQUOT,
            "there are %d names of images already; remove some", IMAGE_NAMES_MAX);
    return r < 0 ? image_store_broken(err, r, "cannot keep an image") : 0;
}

int image_store_add(struct image_store *store, const char *owner, const char *name,
    const char *recipe, json_t *facts, struct image *ret, struct err *err)
{
    char id[IMAGE_ID_LEN + 1];
    char file[IMAGE_ID_LEN + 8];
    cleanup_free char *text = make_id(facts, id);
    if (!text)
        return err_set(err, ERR_INTERNAL, ENOMEM, "the facts of an image cannot be written");
    cleanup_free char *line = xasprintf("%s\n", id);
    (void)snprintf(file, sizeof(file), "%s.json", id);
    const char *known = name ? name : id;
    store_enter(store);
    int r = strlen(text) > FACTS_MAX
                ? -EFBIG
                : store_files_write(store->dir_fd, "images", file, text, strlen(text));
    if (r == 0)
        r = store_files_write(store->dir_fd, "recipes", recipe, line, strlen(line));
    if (r == 0)
        r = put_name(store, owner, known, id);
    if (r == -EDQUOT && !name && store_make_room(store, owner) == 0)
        r = put_name(store, owner, known, id);
    if (r == 0)
        r = read_name(store, owner, known, ret);
    store_leave(store);
    if (r == 0)
        ret->facts = json_incref(facts);
    return not_kept(err, r);
}

/* An image that gets a name needs its id as a name no more. */
static void drop_anonymous(struct image_store *store, const char *owner, const char *id)
{
    cleanup_free char *path = xasprintf("names/%s/%s", owner, id);
    (void)unlinkat(store->dir_fd, path, 0);
}

int image_store_name(struct image_store *store, const char *owner, const char *id,
    const char *name, struct image *ret, struct err *err)
{
    struct image image = {0};
    store_enter(store);
    int r = look_up_visible(store, owner, id, &image);
    if (r == 0 && (r = put_name(store, owner, name, id)) == 0) {
        drop_anonymous(store, owner, id);
        r = read_name(store, owner, name, &image);
    }
    store_leave(store);
    if (r == 0 && (r = image_store_facts(store, &image)) == 0)
        *ret = image;
    return r == -ENOENT ? store_not_found(err, id) : not_kept(err, r);
}

int image_store_reuse(struct image_store *store, const char *owner, const char *name,
    const char *recipe, uint64_t max_age_s, struct image *ret)
{
    char path[DIGEST_HEX + 16];
    char id[IMAGE_ID_LEN + 2];
    struct stat st;
    struct image image = {0};
    (void)snprintf(path, sizeof(path), "recipes/%s", recipe);
    store_enter(store);
    int r = fstatat(store->dir_fd, path, &st, 0) < 0 ||
                    fs_read_small(store->dir_fd, path, id, sizeof(id)) != IMAGE_ID_LEN ||
                    (max_age_s && time(NULL) - st.st_mtim.tv_sec > (time_t)max_age_s)
                ? -ENOENT
                : store_look_up(store, owner, id, &image);
    if (r == 0 && name && !str_eq(image.name, name) &&
        (r = put_name(store, owner, name, id)) == 0) {
        drop_anonymous(store, owner, id);
        r = read_name(store, owner, name, &image);
    }
    store_leave(store);
    if (r == 0 && (r = image_store_facts(store, &image)) == 0)
        *ret = image;
    return r;
}

static int make_dir(int dir_fd, const char *name, uid_t uid, gid_t gid)
{
    if (mkdirat(dir_fd, name, 0700) < 0)
        return errno == EEXIST ? 0 : -errno;
    return fchownat(dir_fd, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

const char *const store_parts[] = {
    "layers", "images", "names", "recipes", "incoming", "spool", NULL};

int image_store_make(int dir_fd, uid_t uid, gid_t gid)
{
    int r = 0;
    for (size_t i = 0; r == 0 && store_parts[i]; i++)
        r = make_dir(dir_fd, store_parts[i], uid, gid);
    return r;
}

int image_store_open(struct image_store **ret, const char *dir, struct err *err)
{
    struct image_store *store = xcalloc(1, sizeof(*store));
    (void)pthread_mutex_init(&store->lock, NULL);
    store->layers = json_object();
    store->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = store->dir_fd < 0 ? -errno : image_store_make(store->dir_fd, geteuid(), getegid());
    store->layers_fd =
        r < 0 ? -1 : openat(store->dir_fd, "layers", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    store->lock_fd =
        r < 0 ? -1 : openat(store->dir_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (r == 0 && (store->layers_fd < 0 || store->lock_fd < 0))
        r = -errno;
    if (r < 0) {
        image_store_close(store);
        return err_set(err, ERR_UNAVAILABLE, -r, "%s: %s", dir, strerror(-r));
    }
    store_sweep(store);
    *ret = store;
    return 0;
}

void image_store_close(struct image_store *store)
{
    if (!store)
        return;
    json_decref(store->layers);
    close_fd(&store->dir_fd);
    close_fd(&store->layers_fd);
    close_fd(&store->lock_fd);
    (void)pthread_mutex_destroy(&store->lock);
    free(store);
}
