/* SPDX-License-Identifier: Apache-2.0 */

/* The image store: what holds its lock, and for how long. */

#include "base/cleanup.h"
#include "base/os/fs.h"
#include "image/store.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIR "/tmp/hermes-image-store-XXXXXX"

struct world {
    char dir[sizeof(DIR)];
    int dir_fd;
    struct image_store *store;
    int used_fd; /* a box uses the layer */
    bool was_free;
};

static int open_world(void **state)
{
    static struct world w;
    struct err err = {0};
    w = (struct world){.dir = DIR, .used_fd = -1};
    assert_non_null(mkdtemp(w.dir));
    w.dir_fd = open(w.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(image_store_open(&w.store, w.dir, &err), 0);
    *state = &w;
    return 0;
}

static int close_world(void **state)
{
    struct world *w = *state;
    image_store_close(w->store);
    close_fd(&w->used_fd);
    close_fd(&w->dir_fd);
    return fs_remove_tree(AT_FDCWD, w->dir);
}

static const char *hex_of(char digit, char to[static DIGEST_HEX + 1])
{
    memset(to, digit, DIGEST_HEX);
    to[DIGEST_HEX] = '\0';
    return to;
}

static void add_layer(struct world *w, char digit, uint64_t bytes)
{
    char hex[DIGEST_HEX + 1];
    struct err err = {0};
    assert_int_equal(mkdirat(w->dir_fd, "incoming/tree", 0755), 0);
    int layer = image_store_keep_layer(w->store, hex_of(digit, hex), bytes, &err);
    assert_true(layer >= 0);
    (void)close(layer);
}

/* An image with these layers, which are there. name NULL: without a name. */
static int add_facts(
    struct world *w, const char *owner, const char *name, const char *digits, int bytes)
{
    char hex[DIGEST_HEX + 1];
    struct image image = {0};
    struct err err = {0};
    json_t *layers = json_array();
    for (const char *digit = digits; *digit; digit++)
        (void)json_array_append_new(layers, json_string(hex_of(*digit, hex)));
    json_t *facts = json_pack(
        "{s:s, s:o, s:i}", "language", "python", "layers", layers, "size_bytes", bytes);
    int r = image_store_add(w->store, owner, name, hex, facts, &image, &err);
    json_decref(facts);
    image_done(&image);
    return r;
}

/* An image with one layer of its own. Those of alice are larger. */
static void add_image(struct world *w, const char *owner, const char *name, char digit)
{
    const int bytes = strcmp(owner, "alice") == 0 ? 2000 : 1000;
    const char digits[] = {digit, '\0'};
    add_layer(w, digit, (uint64_t)bytes);
    assert_int_equal(add_facts(w, owner, name, digits, bytes), 0);
}

static void use_layer(struct world *w, char digit)
{
    char path[DIGEST_HEX + 16] = "layers/";
    memset(path + strlen("layers/"), digit, DIGEST_HEX);
    (void)snprintf(path + strlen("layers/") + DIGEST_HEX, 6, "/tree");
    w->used_fd = openat(w->dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(w->used_fd, LOCK_SH | LOCK_NB), 0);
}

/* Whoever waits asks for unused roots to be let go: then others must be able to use the store.
 */
static void look_at_lock(void *context)
{
    struct world *w = context;
    cleanup_close int fd = openat(w->dir_fd, "lock", O_RDWR | O_CLOEXEC);
    w->was_free = flock(fd, LOCK_EX | LOCK_NB) == 0;
}

static void let_go(void *context)
{
    struct world *w = context;
    look_at_lock(context);
    close_fd(&w->used_fd);
}

static bool has_image(struct world *w, const char *owner, const char *name)
{
    struct image image = {0};
    struct err err = {0};
    bool is_there = image_store_find(w->store, owner, name, &image, &err) == 0;
    image_done(&image);
    return is_there;
}

static bool has_layer(struct world *w, char digit)
{
    char hex[DIGEST_HEX + 1];
    return image_store_has_layer(w->store, hex_of(digit, hex));
}

static struct image_gone clean(
    struct world *w, const struct image_bounds *bounds, void (*call)(void *context))
{
    const struct image_trim trim = {call, w};
    struct image_gone gone = {0};
    struct err err = {0};
    assert_int_equal(image_store_clean(w->store, bounds, &trim, &gone, &err), 0);
    return gone;
}

/* A key that cleans up what it uses itself must not stop the others. */
static void test_nobody_waits_for_a_clean_up(void **state)
{
    struct world *w = *state;
    const struct image_bounds all = {.made_before_s = INT64_MAX, .owner = "alice"};
    add_image(w, "alice", "used", 'a');
    add_image(w, "alice", "idle", 'b');
    add_image(w, "bob", "other", 'c');
    use_layer(w, 'a');
    struct image_gone gone = clean(w, &all, look_at_lock);
    assert_true(w->was_free);
    assert_int_equal(gone.images, 1);
    assert_int_equal(gone.kept, 1);
    assert_true(has_image(w, "alice", "used") && has_image(w, "bob", "other"));
    assert_false(has_image(w, "alice", "idle"));
}

static void test_what_is_let_go_meanwhile_goes(void **state)
{
    struct world *w = *state;
    add_image(w, "alice", "used", 'a');
    add_image(w, "bob", "other", 'c');
    use_layer(w, 'a');
    struct image_gone gone = clean(w, &(struct image_bounds){.max_bytes = 1000}, let_go);
    assert_true(w->was_free);
    assert_int_equal(gone.images, 1);
    assert_int_equal(gone.kept, 0);
    assert_false(has_image(w, "alice", "used"));
    assert_true(has_image(w, "bob", "other"));
}

static void open_again(const struct world *w)
{
    struct image_store *other = NULL;
    struct err err = {0};
    assert_int_equal(image_store_open(&other, w->dir, &err), 0);
    image_store_close(other);
}

/* `hermes image ls` beside a long import opens the store, and removes what a crash left. */
static void test_a_long_import_keeps_its_members(void **state)
{
    struct world *w = *state;
    const struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    struct stat st;
    assert_int_equal(mkdirat(w->dir_fd, "spool/.members", 0700), 0);
    assert_int_equal(utimensat(w->dir_fd, "spool/.members", old, 0), 0);
    int turn = openat(w->dir_fd, IMAGE_TURN, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(flock(turn, LOCK_EX | LOCK_NB), 0);
    open_again(w);
    assert_int_equal(fstatat(w->dir_fd, "spool/.members", &st, 0), 0);
    close_fd(&turn);
    open_again(w);
    assert_int_equal(fstatat(w->dir_fd, "spool/.members", &st, 0), -1);
}

/* Who builds upon an image and removes it still has its layers. */
static void test_an_owner_has_all_layers_of_his_images(void **state)
{
    struct world *w = *state;
    struct err err = {0};
    add_image(w, "alice", "base", 'a');
    add_layer(w, 'b', 10);
    assert_int_equal(add_facts(w, "alice", "upon", "ba", 10), 0);
    assert_int_equal(image_store_delete(w->store, "alice", "base", NULL, &err), 0);
    add_image(w, "bob", "other", 'c');
    struct image_gone gone = clean(w, &(struct image_bounds){.max_bytes = 2500}, look_at_lock);
    assert_int_equal(gone.images, 1);
    assert_false(has_image(w, "alice", "upon"));
    assert_true(has_image(w, "bob", "other"));
}

/* A layer counts once for each owner, and one of an image for all for nobody. */
static void test_layers_count_once(void **state)
{
    struct world *w = *state;
    add_layer(w, 'a', 600);
    add_layer(w, 'b', 900);
    add_layer(w, 'c', 1000);
    assert_int_equal(add_facts(w, IMAGE_FOR_ALL, "all", "b", 0), 0);
    assert_int_equal(add_facts(w, "alice", "one", "ab", 0), 0);
    assert_int_equal(add_facts(w, "alice", "two", "ba", 0), 0);
    assert_int_equal(add_facts(w, "bob", "other", "c", 0), 0);
    struct image_gone gone = clean(w, &(struct image_bounds){.max_bytes = 2400}, look_at_lock);
    assert_int_equal(gone.images, 1);
    assert_false(has_image(w, "bob", "other"));
    assert_true(has_image(w, "alice", "one") && has_image(w, "alice", "two"));
}

/* As many names of an owner as there may be, all of one image. */
static void fill_names(struct world *w, const char *owner, const char *of)
{
    char path[64];
    char id[IMAGE_ID_LEN + 2];
    (void)snprintf(path, sizeof(path), "names/%s/%s", owner, of);
    assert_int_equal(fs_read_small(w->dir_fd, path, id, sizeof(id)), IMAGE_ID_LEN);
    for (int i = 0; i < IMAGE_NAMES_MAX - 3; i++) {
        (void)snprintf(path, sizeof(path), "names/%s/n%d", owner, i);
        cleanup_close int fd = openat(w->dir_fd, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_int_equal(write(fd, id, IMAGE_ID_LEN), IMAGE_ID_LEN);
    }
}

/* A session with packages must not keep its key from installing others. */
static void test_room_is_made_beside_what_is_used(void **state)
{
    struct world *w = *state;
    for (char digit = 'a'; digit <= 'e'; digit++)
        add_layer(w, digit, 1);
    assert_int_equal(add_facts(w, "alice", "named", "a", 0), 0);
    assert_int_equal(add_facts(w, "alice", NULL, "b", 0), 0); /* the oldest */
    assert_int_equal(add_facts(w, "alice", NULL, "c", 0), 0);
    fill_names(w, "alice", "named");
    use_layer(w, 'b');
    assert_int_equal(add_facts(w, "alice", NULL, "d", 0), 0);
    assert_true(has_layer(w, 'b') && has_layer(w, 'd'));
    assert_false(has_layer(w, 'c'));
    assert_int_equal(
        add_facts(w, "alice", "more", "e", 0), -EDQUOT); /* control: names are full */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_nobody_waits_for_a_clean_up, open_world, close_world),
        cmocka_unit_test_setup_teardown(
            test_what_is_let_go_meanwhile_goes, open_world, close_world),
        cmocka_unit_test_setup_teardown(
            test_a_long_import_keeps_its_members, open_world, close_world),
        cmocka_unit_test_setup_teardown(
            test_an_owner_has_all_layers_of_his_images, open_world, close_world),
        cmocka_unit_test_setup_teardown(test_layers_count_once, open_world, close_world),
        cmocka_unit_test_setup_teardown(
            test_room_is_made_beside_what_is_used, open_world, close_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
