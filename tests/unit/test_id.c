/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about identifiers: shape, alphabet, no repetition, no bias one could see. */

#include "test.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/id.h"

static void id_is_prefix_and_26_characters_of_the_alphabet(void **state)
{
    char id[ID_MAX];

    memset(id, 'x', sizeof(id));
    id_make("run_", id);
    assert_int_equal(strlen(id), 30);
    assert_memory_equal(id, "run_", 4);
    assert_int_equal(strspn(id + 4, "0123456789abcdefghjkmnpqrstvwxyz"), 26);
}

static void longest_prefix_fits(void **state)
{
    char id[ID_MAX];

    id_make("abcdefghijk_", id);
    assert_int_equal(strlen(id), 38);
    id_make("", id);
    assert_int_equal(strlen(id), 26);
}

static void longer_prefix_aborts(void **state)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        char id[ID_MAX];
        (void)signal(SIGABRT, SIG_DFL);
        id_make("abcdefghijkl_", id);
        _exit(0);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static int compare_ids(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void ids_do_not_repeat(void **state)
{
    enum { COUNT = 20000 };
    char(*ids)[ID_MAX] = calloc(COUNT, sizeof(*ids));

    assert_non_null(ids);
    for (int i = 0; i < COUNT; i++)
        id_make("", ids[i]);
    qsort(ids, COUNT, sizeof(*ids), compare_ids);
    for (int i = 1; i < COUNT; i++)
        assert_string_not_equal(ids[i - 1], ids[i]);
    free(ids);
}

static void every_character_is_about_as_frequent(void **state)
{
    enum { COUNT = 20000 };
    unsigned counts[256] = {0};
    char id[ID_MAX];

    for (int i = 0; i < COUNT; i++) {
        id_make("", id);
        for (const char *p = id; *p; p++)
            counts[(unsigned char)*p]++;
    }
    /* 16250 expected of each; ten standard deviations are about 1250. */
    for (const char *p = "0123456789abcdefghjkmnpqrstvwxyz"; *p; p++)
        assert_in_range(counts[(unsigned char)*p], 15000, 17500);
}

static void random_fills_exactly_its_bytes(void **state)
{
    unsigned char bytes[1002] = {0};
    int zeroes = 0;

    id_random(bytes + 1, 1000);
    assert_int_equal(bytes[0], 0);
    assert_int_equal(bytes[1001], 0);
    for (int i = 1; i <= 1000; i++)
        zeroes += bytes[i] == 0;
    assert_true(zeroes < 50);
    id_random(bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(id_is_prefix_and_26_characters_of_the_alphabet),
        cmocka_unit_test(longest_prefix_fits),
        cmocka_unit_test(longer_prefix_aborts),
        cmocka_unit_test(ids_do_not_repeat),
        cmocka_unit_test(every_character_is_about_as_frequent),
        cmocka_unit_test(random_fills_exactly_its_bytes),
    };
    return cmocka_run_group_tests_name("id", tests, NULL, NULL);
}
