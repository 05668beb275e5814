/* SPDX-License-Identifier: Apache-2.0 */

/* Rows of backends: what the server gets of them, and what counts as a box. */

#include "state/place_table.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set(struct place_table *table, const char *name, const char *key, const char *value)
{
    assert_null(place_table_set(table, name, key, value));
}

static void add(struct place_table *table, const char *name, const char *kind)
{
    set(table, name, "kind", kind);
    set(table, name, "keys", "*");
}

/* Reads what place_table_write() has written, as a server does. */
static void read_line(struct place_table *to, char name[64], char *line)
{
    char *equals = strstr(line, " = ");
    if (sscanf(line, "[backend %63[^]]]", name) == 1 || !equals)
        return;
    *equals = '\0';
    set(to, name, line, equals + 3);
}

static void pass_on(const struct place_table *from, struct place_table *to)
{
    struct buf text;
    char name[64] = "";
    struct strv problems = {0};
    buf_init(&text, 65536);
    assert_int_equal(place_table_write(from, &text), 0);
    for (const char *hidden = "/run/secret.sock\0/etc\0TOKEN\0example.org\0"; *hidden;
         hidden += strlen(hidden) + 1)
        assert_null(strstr(text.data, hidden));
    for (char *at = text.data, *line; (line = strsep(&at, "\n"));)
        read_line(to, name, line);
    place_table_check(to, &problems);
    assert_int_equal(problems.count, 0);
    buf_done(&text);
}

static void the_server_knows_what_is_a_box(void **state)
{
    static struct place_table table, server;
    struct strv problems = {0};
    add(&table, "plain", "docker");
    set(&table, "plain", "docker_socket", "/run/secret.sock");
    set(&table, "plain", "docker_forward_env", "TOKEN");
    set(&table, "plain", "container_memory", "512");
    set(&table, "plain", "container_cpu", "0.25");
    set(&table, "plain", "container_persistent", "no");
    add(&table, "bound", "docker");
    set(&table, "bound", "docker_volumes", "/etc:/host:ro");
    add(&table, "doubted", "docker");
    set(&table, "doubted", "isolated", "no");
    add(&table, "far", "ssh");
    set(&table, "far", "host", "example.org");
    add(&table, "here", "local");
    place_table_check(&table, &problems);
    assert_int_equal(problems.count, 0);
    pass_on(&table, &server);
    assert_int_equal(server.count, table.count);
    const bool boxes[] = {true, false, false, false, false};
    for (uint32_t i = 0; i < table.count; i++) {
        assert_int_equal(place_is_box(&table.rows[i]), boxes[i]);
        assert_int_equal(place_is_box(&server.rows[i]), boxes[i]);
        assert_memory_equal(
            &table.rows[i].limits, &server.rows[i].limits, sizeof(struct place_limits));
    }
    assert_int_equal(server.rows[0].limits.value[PLACE_MEMORY], 512);
    assert_int_equal(server.rows[0].limits.value[PLACE_CPUS], 250);
    assert_int_equal(server.rows[0].limits.value[PLACE_PROCESSES], 256);
    assert_int_equal(server.rows[0].limits.value[PLACE_DISK], 51200);
    assert_int_equal(server.rows[0].limits.asked, 1u << PLACE_MEMORY | 1u << PLACE_CPUS);
    assert_int_equal(server.rows[3].limits.value[PLACE_MEMORY], 0);
    assert_string_equal(place_isolation(&server.rows[1]), "partial");
    assert_string_equal(place_network(&server.rows[0]), "none");
    assert_string_equal(place_network(&server.rows[3]), "full");
}

/* A key of another kind would be without effect: the start of the server says so. */
static void a_key_of_another_kind_is_refused(void **state)
{
    static const char *const lines[][3] = {{"local", "reconnect_s", "5"},
        {"ssh", "container_persistent", "no"}, {"ssh", "open_s", "10"},
        {"docker", "lifetime_s", "60"}, {"plugin", "container_idle_s", "5"},
        {"apptainer", "container_disk", "5"}, {"docker", "sudo", "no"},
        {"plugin", "host", "far.example.org"}, {"local", "port", "0"}};
    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        static struct place_table table;
        struct strv problems = {0};
        char wanted[100];
        table = (struct place_table){0};
        add(&table, "odd", lines[i][0]);
        set(&table, "odd", lines[i][1], lines[i][2]);
        place_table_check(&table, &problems);
        (void)snprintf(wanted, sizeof(wanted), "%s is not for %s", lines[i][1], lines[i][0]);
        assert_int_equal(problems.count, 1);
        assert_non_null(strstr(problems.items[0], wanted));
        strv_done(&problems);
    }
}

static void a_limit_is_for_kinds_that_may_enforce_it(void **state)
{
    static struct place_table table;
    struct strv problems = {0};
    add(&table, "far", "ssh");
    set(&table, "far", "container_memory", "512");
    place_table_check(&table, &problems);
    assert_int_equal(problems.count, 1);
    assert_non_null(strstr(problems.items[0], "container_memory is not for ssh"));
    strv_done(&problems);
    const struct place_row odd = {.kind = 99};
    assert_false(place_is_box(&odd));
    assert_int_equal(place_enforces(99), 0);
}

static void the_socket_makes_a_row(void **state)
{
    static struct place_table table;
    assert_null(place_table_add_docker(&table, "/run/x.sock"));
    assert_null(place_table_add_docker(&table, "/run/y.sock"));
    assert_int_equal(table.count, 1);
    assert_string_equal(table.rows[0].socket, "/run/x.sock");
}

static void words_are_fit_for_people(void **state)
{
    static const struct {
        const char *from, *to;
    } rows[] = {
        {"plain \xc3\xa9", "plain \xc3\xa9"},
        {"a\nb\tc\x7f", "a b c "},
        {"\033[31mred\033[0m \033x", "red  x"},
        {"\033[", ""},
        {"\xff\xc3", "??"},
        {"a\xe2\x80\xae"
         "b\xe2\x80\xa8",
            "a b "}, /* U+202E, U+2028 */
        {"\xc2\x9b", " "},
    };
    char to[64], small[8], same[] = "x\033[1my\n";
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(place_words(to, sizeof(to), rows[i].from, strlen(rows[i].from)),
            strlen(rows[i].to));
        assert_string_equal(to, rows[i].to);
    }
    (void)place_words(same, sizeof(same), same, strlen(same));
    assert_string_equal(same, "xy ");
    (void)place_words(small, sizeof(small), "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 8);
    assert_string_equal(small, "\xc3\xa9\xc3\xa9\xc3\xa9"); /* never half of a letter */
    place_quote(to, sizeof(to), "a\" and more\n");
    assert_string_equal(to, "\"a' and more \"");
    place_quote(small, sizeof(small), "a long text");
    assert_string_equal(small, "\"a lon\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_server_knows_what_is_a_box),
        cmocka_unit_test(a_key_of_another_kind_is_refused),
        cmocka_unit_test(a_limit_is_for_kinds_that_may_enforce_it),
        cmocka_unit_test(the_socket_makes_a_row),
        cmocka_unit_test(words_are_fit_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
