/* SPDX-License-Identifier: Apache-2.0 */

/* The cache of trees: what is found, what is not, and that it stays small. */

#include "approval/shell_cache.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test.h"

static struct shell_cache *cache;

static int set_up(void **state)
{
    cache = shell_cache_new();
    return 0;
}

static int tear_down(void **state)
{
    shell_cache_free(cache);
    return 0;
}

/* A tree of about `size` bytes. */
static void put(int owner, const char *text, size_t size)
{
    char *filler = calloc(1, size + 1);
    assert_non_null(filler);
    memset(filler, 'x', size);
    json_t *tree = json_pack("{s:s, s:s}", "Text", text, "Filler", filler);
    assert_non_null(tree);
    shell_cache_put(cache, owner, text, strlen(text), tree);
    json_decref(tree);
    free(filler);
}

static bool has(int owner, const char *text)
{
    json_t *tree = shell_cache_get(cache, owner, text, strlen(text));
    if (tree)
        assert_string_equal(json_string_value(json_object_get(tree, "Text")), text);
    json_decref(tree);
    return tree;
}

static const char *text_of(unsigned number)
{
    static char text[32];
    (void)snprintf(text, sizeof(text), "echo %u", number);
    return text;
}

static void a_text_is_found_by_its_bytes(void **state)
{
    assert_false(has(0, "ls"));
    put(0, "ls", 1);
    put(0, "ls", 1);
    put(0, "", 1);
    assert_true(has(0, "ls"));
    assert_true(has(0, ""));
    assert_false(has(0, "ls "));
    assert_false(has(0, "l"));
    assert_null(shell_cache_get(cache, 0, "ls\0x", 4));
}

static void owners_share_nothing(void **state)
{
    put(0, "ls", 1);
    assert_false(has(1, "ls"));
    assert_false(has(-1, "ls"));
    put(-1, "ls", 1);
    assert_true(has(-1, "ls"));
}

static void callers_own_their_trees(void **state)
{
    put(0, "ls", 1);
    json_t *tree = shell_cache_get(cache, 0, "ls", 2);
    assert_int_equal(json_object_clear(tree), 0);
    json_decref(tree);
    assert_true(has(0, "ls"));
}

static void what_is_large_is_not_kept(void **state)
{
    put(0, "large", SHELL_CACHE_TREE_MAX);
    assert_false(has(0, "large"));
    assert_int_equal(shell_cache_bytes(cache), 0);
    put(0, "fits", SHELL_CACHE_TREE_MAX - 64);
    assert_true(has(0, "fits"));
}

static void ten_thousand_texts_do_not_grow_it(void **state)
{
    for (unsigned i = 0; i < 10000; i++) {
        put(0, text_of(i), i < 200 ? SHELL_CACHE_TREE_MAX - 64 : 100);
        assert_true(shell_cache_bytes(cache) <= SHELL_CACHE_BYTES);
    }
    size_t kept = 0;
    for (unsigned i = 0; i < 10000; i++)
        kept += has(0, text_of(i));
    assert_true(kept > 128 && kept <= SHELL_CACHE_ROWS);
    assert_true(has(0, text_of(9999)));
}

static void what_is_used_stays(void **state)
{
    for (unsigned i = 0; i < 2 * SHELL_CACHE_ROWS; i++) {
        put(0, text_of(i), 10);
        assert_true(has(0, text_of(0)));
    }
    assert_false(has(0, text_of(1)));
    assert_true(has(0, text_of(SHELL_CACHE_ROWS + 1)));
}

static void many_texts_of_one_do_not_displace_those_of_another(void **state)
{
    put(1, "mine", 10);
    for (unsigned i = 0; i < 4 * SHELL_CACHE_ROWS; i++)
        put(0, text_of(i), 1000);
    assert_true(has(1, "mine"));
    put(2, "new", 10);
    assert_true(has(2, "new") && has(1, "mine"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_text_is_found_by_its_bytes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(owners_share_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(callers_own_their_trees, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_large_is_not_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ten_thousand_texts_do_not_grow_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_used_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            many_texts_of_one_do_not_displace_those_of_another, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
