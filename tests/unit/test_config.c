/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about settings: who beats whom, and that nothing wrong goes unsaid. */

#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "runtime_fixture.h"
#include "state/config.h"

static bool says(const struct strv *problems, const char *word)
{
    for (size_t i = 0; i < problems->count; i++) {
        if (strstr(problems->items[i], word))
            return true;
    }
    return false;
}

static int load(struct config *ret, struct strv *problems, char **argv)
{
    int argc = 0;
    while (argv[argc])
        argc++;
    return config_load(ret, argc, argv, NULL, problems);
}

static void every_default_is_valid(void **state)
{
    struct config c;
    struct strv problems = {0};
    char *argv[] = {(char *)"serve", NULL};

    assert_int_equal(load(&c, &problems, argv), 0);
    assert_int_equal(c.port, 8000);
    assert_string_equal(c.host, "127.0.0.1");
    assert_int_equal(c.max_body, 16 << 20);
    assert_int_equal(c.min_level, 2);
    assert_int_equal(c.maxima.wall_ms, 600000);
    config_done(&c);
}

static void flags_beat_environment_beats_env_file_beats_file(void **state)
{
    CLEANUP(fixture_remove_dir) char *dir = fixture_make_dir();
    struct config c;
    struct strv problems = {0};
    char conf[128], flag[160], cwd[512];

    (void)snprintf(conf, sizeof(conf), "%s/hermes.conf", dir);
    (void)snprintf(flag, sizeof(flag), "--config=%s", conf);
    FILE *f = fopen(conf, "w");
    (void)fputs("# c\nport = 1\nqueue = 1\ngrace_s = 1\nmax_body = 1m\n"
                "[mount data]\npath = /srv/data\nmode = rw\n",
        f);
    (void)fclose(f);
    (void)snprintf(conf, sizeof(conf), "%s/.env", dir);
    f = fopen(conf, "w");
    (void)fputs("PORT=2\nexport HERMES_QUEUE=\"2\"\nHERMES_GRACE_S='2'\nOTHER=x\n", f);
    (void)fclose(f);
    assert_non_null(getcwd(cwd, sizeof(cwd)));
    assert_int_equal(chdir(dir), 0);
    (void)setenv("PORT", "3", 1);
    (void)setenv("HERMES_QUEUE", "3", 1);
    char *argv[] = {(char *)"serve", flag, (char *)"--port", (char *)"4", NULL};
    assert_int_equal(load(&c, &problems, argv), 0);
    assert_int_equal(c.port, 4);
    assert_int_equal(c.queue, 3);
    assert_int_equal(c.grace_s, 2);
    assert_int_equal(c.max_body, 1 << 20);
    assert_int_equal(c.mounts.count, 1);
    assert_true(c.mounts.items[0].writable);
    config_done(&c);
    (void)setenv("HERMES_PORT", "5", 1); /* the native name beats the other */
    char *bare[] = {(char *)"serve", NULL};
    assert_int_equal(load(&c, &problems, bare), 0);
    assert_int_equal(c.port, 5);
    config_done(&c);
    (void)unsetenv("PORT");
    (void)unsetenv("HERMES_PORT");
    (void)unsetenv("HERMES_QUEUE");
    assert_int_equal(chdir(cwd), 0);
}

static void all_problems_are_listed(void **state)
{
    struct config c;
    struct strv problems = {0};
    char *argv[] = {(char *)"serve", (char *)"--port=70000", (char *)"--queue", (char *)"many",
        (char *)"--hat=red", (char *)"--min-level=none", (char *)"--history=disk",
        (char *)"--max-body=1", (char *)"--config=/nonexistent", (char *)"stray", NULL};

    (void)setenv("MAX_TIMEOUT", "1", 1);
    assert_true(load(&c, &problems, argv) < 0);
    (void)unsetenv("MAX_TIMEOUT");
    static const char *const words[] = {"port", "queue", "hat", "min-level", "history",
        "max-body", "/nonexistent", "stray", "MAX_TIMEOUT"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        assert_true(says(&problems, words[i]));
    strv_done(&problems);
    config_done(&c);
}

static void what_is_written_reads_back_without_secrets(void **state)
{
    struct config c, again;
    struct strv problems = {0};
    struct buf out;
    char *argv[] = {(char *)"serve", (char *)"--api-token=hush-hush", (char *)"--max-cpus=1.5",
        (char *)"--history=memory", (char *)"--debug", (char *)"--network-max=allow",
        (char *)"--network-open=10.1.0.0/16, fd00:1::/32", NULL};

    assert_int_equal(load(&c, &problems, argv), 0);
    assert_true(c.debug);
    buf_init(&out, 65536);
    assert_int_equal(config_write(&c, &out), 0);
    assert_null(strstr(out.data, "hush"));
    assert_int_equal(config_load_text(&again, out.data, out.len, &problems), 0);
    assert_int_equal(again.maxima.cpu_milli, 1500);
    assert_int_equal(again.history, HISTORY_MEMORY);
    assert_int_equal(again.network_max, NETWORK_ALLOW);
    assert_string_equal(again.network_open, "10.1.0.0/16, fd00:1::/32");
    assert_string_equal(again.host, c.host);
    buf_done(&out);
    config_done(&c);
    config_done(&again);
}

/* A row of limit_table has a setting of its maximum. */
static void every_limit_has_a_setting(void **state)
{
    for (size_t i = 0; i < limit_count; i++) {
        const struct config_row *found = NULL;
        char key[64];

        (void)snprintf(key, sizeof(key), "max_%s", limit_table[i].name);
        for (size_t k = 0; k < config_count; k++) {
            if (strcmp(config_table[k].key, key) == 0)
                found = &config_table[k];
        }
        if (!found || found->offset != offsetof(struct config, maxima) + limit_table[i].offset)
            fail_msg("there is no setting %s", key);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_limit_has_a_setting),
        cmocka_unit_test(every_default_is_valid),
        cmocka_unit_test(flags_beat_environment_beats_env_file_beats_file),
        cmocka_unit_test(all_problems_are_listed),
        cmocka_unit_test(what_is_written_reads_back_without_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
