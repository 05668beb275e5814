/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about the body of POST /v1/runs. */

#include "base/base64.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "run/decode.h"
#include "runtime_fixture.h"

static struct runtime_registry runtimes;
static struct err problem;

static int load_runtimes(void **state)
{
    return runtime_load(&runtimes, fixture_dirs(), NULL, &problem);
}

static int decode_bytes(const char *text, size_t len, struct json_run *ret)
{
    static const struct mount_table mounts = {{{(char *)"data", (char *)"/srv", false}}, 1};
    json_t *body = NULL;
    problem = (struct err){0};
    *ret = (struct json_run){0};
    run_spec_init(&ret->spec);
    int r = json_run_parse(text, len, &body, &problem);
    if (r == 0)
        r = json_run_decode(body, &runtimes, &mounts, ret, &problem);
    json_decref(body);
    return r;
}

static void assert_refused(const char *text, const char *field)
{
    struct json_run run;
    assert_true(decode_bytes(text, strlen(text), &run) < 0);
    assert_int_equal(problem.code, ERR_INVALID);
    if (field)
        assert_string_equal(problem.field, field);
    json_run_done(&run);
}

static void every_field_arrives(void **state)
{
    static const char text[] =
        "{\"language\":\"py\",\"code\":\"x\\u0000y\",\"files\":[{\"name\":\"d/"
        "a.txt\",\"content\":"
        "\"aGk=\",\"encoding\":\"base64\",\"executable\":true}],\"args\":[\"1\",\"-x\"],"
        "\"env\":{\"A\":\"b\"},\"stdin\":\"AAE=\",\"stdin_encoding\":\"base64\","
        "\"limits\":{\"wall_ms\":100,\"cpus\":0.5,\"memory_mb\":64.0},"
        "\"mounts\":[{\"name\":\"data\",\"path\":\"/mnt/d\"}],\"network\":\"none\","
        "\"image\":\"python\",\"collect\":[\"*.png\"],\"output_encoding\":\"base64\","
        "\"async\":true}";
    struct json_run run;

    assert_int_equal(decode_bytes(text, sizeof(text) - 1, &run), 0);
    const struct run_spec *s = &run.spec;
    assert_string_equal(s->runtime->name, "python");
    assert_int_equal(s->files.count, 2);
    assert_memory_equal(run_files_find(&s->files, s->entry)->content, "x\0y", 3);
    assert_memory_equal(run_files_find(&s->files, "d/a.txt")->content, "hi", 2);
    assert_true(run_files_find(&s->files, "d/a.txt")->executable);
    assert_string_equal(s->args.items[1], "-x");
    assert_string_equal(s->env.items[0], "A=b");
    assert_int_equal(s->stdin_size, 2);
    assert_int_equal(s->limits.wall_ms, 100);
    assert_int_equal(s->limits.cpu_milli, 500);
    assert_int_equal(s->limits.memory_mb, 64);
    assert_string_equal(s->mounts[0].path, "/mnt/d");
    assert_string_equal(s->collect.items[0], "*.png");
    assert_int_equal(run.encoding, ENCODE_BASE64);
    assert_true(run.is_async);
    json_run_done(&run);
}

#define P "{\"language\":\"python\",\"code\":\"1\""

static void wrong_fields_are_named(void **state)
{
    assert_refused("{}", "language");
    assert_refused("{\"language\":\"brainfuck!\"}", "language");
    assert_refused("{\"language\":{}}", "language");
    assert_refused("{\"language\":\"python\",\"code\":1}", "code");
    assert_refused(P ",\"hat\":1}", "hat");
    assert_refused(P ",\"files\":\"x\"}", "files");
    assert_refused(P ",\"files\":[1]}", "files[0]");
    assert_refused(P ",\"files\":[{\"name\":\"../x\",\"content\":\"\"}]}", "files[0].name");
    assert_refused(
        P ",\"files\":[{\"name\":\"a\\u0000b\",\"content\":\"\"}]}", "files[0].name");
    assert_refused(P ",\"files\":[{\"name\":\"a\"}]}", "files[0].content");
    assert_refused(P ",\"files\":[{\"name\":\"a\",\"content\":\"\",\"x\":1}]}", "files[0].x");
    assert_refused(P ",\"files\":[{\"name\":\"a\",\"content\":\"*\",\"encoding\":\"base64\"}]}",
        "files[0].content");
    assert_refused(P ",\"args\":[1]}", "args[0]");
    assert_refused(P ",\"args\":[\"a\\u0000\"]}", "args[0]");
    assert_refused(P ",\"env\":{\"A=B\":\"\"}}", "env.A=B");
    assert_refused(P ",\"env\":{\"HERMES_X\":\"\"}}", "env.HERMES_X");
    assert_refused(P ",\"env\":{\"A\":1}}", "env.A");
    assert_refused(P ",\"limits\":{\"wall_ms\":-1}}", "limits.wall_ms");
    assert_refused(P ",\"limits\":{\"wall_ms\":0}}", "limits.wall_ms");
    assert_refused(P ",\"limits\":{\"wall_ms\":\"10\"}}", "limits.wall_ms");
    assert_refused(P ",\"limits\":{\"wall_ms\":null}}", "limits.wall_ms");
    assert_refused(P ",\"limits\":{\"wall_ms\":1e18}}", "limits.wall_ms");
    assert_refused(P ",\"limits\":{\"wall_ms\":0.5}}", "limits.wall_ms");
    assert_refused(P ",\"limits\":{\"cpus\":0.00001}}", "limits.cpus");
    assert_refused(P ",\"limits\":{\"speed\":1}}", "limits.speed");
    assert_refused(P ",\"limits\":[]}", "limits");
    assert_refused(P ",\"mounts\":[{\"name\":\"etc\",\"path\":\"/mnt/x\"}]}", "mounts[0]");
    assert_refused(P ",\"mounts\":[{\"name\":\"data\",\"path\":\"/etc\"}]}", "mounts[0]");
    assert_refused(P ",\"mounts\":[{\"name\":\"data\",\"path\":\"/mnt/x\",\"mode\":\"rw\"}]}",
        "mounts[0]");
    assert_refused(P ",\"async\":1}", "async");
    assert_refused(P ",\"output_encoding\":\"latin1\"}", "output_encoding");
}

static void malformed_json_is_refused(void **state)
{
    static const char *const texts[] = {"", "[]", "null", "{", "{\"a\":NaN}", "{\"a\":1e999}",
        "{\"a\":1,\"a\":2}", "{} x", "\xef\xbb\xbf{}", "{/* c */}", "{\"a\":\"\xff\"}",
        "{\"a\":\"\\ud800\"}", "{\"a\":\"\n\"}", "{\"a\":\"\xc0\x80\"}"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_refused(texts[i], NULL);
}

static void bombs_are_refused_quickly(void **state)
{
    size_t len = 4 << 20;
    char *text = malloc(len);
    struct json_run run;

    memset(text, '[', len);
    assert_true(decode_bytes(text, len, &run) < 0);
    for (size_t i = 0; i + 5 <= len; i += 5)
        memcpy(text + i, "{\"a\":", 5);
    assert_true(decode_bytes(text, len, &run) < 0);
    memset(text, ',', len);
    text[0] = '[';
    assert_true(decode_bytes(text, len, &run) < 0);
    free(text);
}

static void an_image_is_noted_and_looked_for_later(void **state)
{
    static const char text[] = P ",\"image\":\"my-image\"}";
    struct json_run run;
    assert_int_equal(decode_bytes(text, strlen(text), &run), 0);
    assert_string_equal(run.spec.image_name, "my-image");
    assert_null(run.spec.image);
    json_run_done(&run);
}

static void base64_is_strict(void **state)
{
    static const char *const bad[] = {
        "a", "ab", "abc", "a===", "====", "ab=c", "ab c", "YQ=\n"};
    char *out;
    size_t len;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_true(base64_decode(bad[i], strlen(bad[i]), &out, &len) < 0);
    assert_int_equal(base64_decode("", 0, &out, &len), 0);
    assert_int_equal(len, 0);
    free(out);
    assert_int_equal(base64_decode("AP8/", 4, &out, &len), 0);
    assert_memory_equal(out, "\x00\xff\x3f", 3);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_arrives),
        cmocka_unit_test(wrong_fields_are_named),
        cmocka_unit_test(malformed_json_is_refused),
        cmocka_unit_test(bombs_are_refused_quickly),
        cmocka_unit_test(an_image_is_noted_and_looked_for_later),
        cmocka_unit_test(base64_is_strict),
    };
    return cmocka_run_group_tests(tests, load_runtimes, NULL);
}
