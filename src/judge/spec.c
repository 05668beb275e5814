/* SPDX-License-Identifier: Apache-2.0 */

/* See judge.h. The lists of a judgement's request and the checks that need the whole
 * request. */

#include "judge/judge.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MATCH_MAX = 500000000 }; /* steps of matching test names with patterns */

void judge_spec_init(struct judge_spec *spec)
{
    *spec = (struct judge_spec){.rule = {.kind = COMPARE_TRIM}};
    run_spec_init(&spec->solution);
    run_spec_init(&spec->checker);
    run_spec_init(&spec->interactor);
}

static void text_done(struct judge_text *text)
{
    free(text->data);
    free(text->path);
}

void judge_spec_done(struct judge_spec *spec)
{
    for (size_t i = 0; i < spec->test_count; i++) {
        struct judge_test *test = &spec->tests[i];
        free(test->name);
        text_done(&test->input);
        text_done(&test->expected);
        strv_done(&test->args);
    }
    for (size_t i = 0; i < spec->group_count; i++) {
        free(spec->groups[i].name);
        strv_done(&spec->groups[i].tests);
        strv_done(&spec->groups[i].depends);
    }
    free(spec->tests);
    free(spec->groups);
    run_spec_done(&spec->solution);
    run_spec_done(&spec->checker);
    run_spec_done(&spec->interactor);
    *spec = (struct judge_spec){0};
}

struct judge_test *judge_spec_add_test(struct judge_spec *spec)
{
    spec->tests = xreallocarray(spec->tests, spec->test_count + 1, sizeof(*spec->tests));
    struct judge_test *test = &spec->tests[spec->test_count++];
    *test = (struct judge_test){.points = 1, .group = JUDGE_NO_GROUP};
    return test;
}

struct judge_group *judge_spec_add_group(struct judge_spec *spec)
{
    spec->groups = xreallocarray(spec->groups, spec->group_count + 1, sizeof(*spec->groups));
    struct judge_group *group = &spec->groups[spec->group_count++];
    *group = (struct judge_group){0};
    return group;
}

static int find_group(const struct judge_spec *spec, const char *name, size_t before)
{
    for (size_t i = 0; i < before; i++) {
        if (str_eq(spec->groups[i].name, name))
            return (int)i;
    }
    return -1;
}

/* Tests are decided in their order. Therefore the tests of a group must come after the tests of
 * the groups that it depends on. */
static int check_order(const struct judge_spec *spec, size_t at, struct err *err)
{
    const struct judge_group *group = &spec->groups[at];
    size_t first = spec->test_count;
    for (size_t i = spec->test_count; i-- > 0;)
        first = spec->tests[i].group == (int)at ? i : first;
    for (size_t i = first; i < spec->test_count; i++) {
        for (size_t k = 0; k < group->depends.count; k++) {
            char field[64];
            (void)snprintf(field, sizeof(field), "groups[%zu].depends", at);
            if (spec->tests[i].group == (int)group->depend_at[k])
                return err_field(err, field,
                    "the test `%.64s` of the group `%.64s` must come before those of `%.64s`",
                    spec->tests[i].name, group->depends.items[k], group->name);
        }
    }
    return 0;
}

static int settle_group(struct judge_spec *spec, size_t at, struct err *err)
{
    struct judge_group *group = &spec->groups[at];
    const size_t max = sizeof(group->depend_at) / sizeof(group->depend_at[0]);
    char field[64];
    size_t matched = 0;
    (void)snprintf(field, sizeof(field), "groups[%zu].name", at);
    if (find_group(spec, group->name, at) >= 0)
        return err_field(err, field, "two groups are named `%.64s`", group->name);
    (void)snprintf(field, sizeof(field), "groups[%zu].depends", at);
    if (group->depends.count > max)
        return err_field(err, field, "a group depends on at most %zu others", max);
    for (size_t i = 0; i < group->depends.count; i++) {
        int found = find_group(spec, group->depends.items[i], at);
        if (found < 0)
            return err_field(err, field,
                "there is no group `%.64s` before this one; a group depends on earlier ones",
                group->depends.items[i]);
        group->depend_at[i] = (size_t)found;
    }
    (void)snprintf(field, sizeof(field), "groups[%zu].tests", at);
    for (size_t i = 0; i < spec->test_count; i++) {
        struct judge_test *test = &spec->tests[i];
        bool is_in = false;
        for (size_t k = 0; k < group->tests.count; k++)
            is_in = is_in || str_glob_match(group->tests.items[k], test->name);
        if (is_in && test->group != JUDGE_NO_GROUP)
            return err_field(err, field, "the test `%.64s` is in the group `%.64s` already",
                test->name, spec->groups[test->group].name);
        if (is_in)
            test->group = (int)at;
        matched += is_in;
    }
    if (!matched)
        return err_field(err, field, "no test has such a name");
    return check_order(spec, at, err);
}

static int settle_test(struct judge_spec *spec, size_t at, struct err *err)
{
    struct judge_test *test = &spec->tests[at];
    char field[64];
    if (!test->name)
        test->name = xasprintf("%zu", at + 1);
    (void)snprintf(field, sizeof(field), "tests[%zu].expected", at);
    if (!test->has_expected && !spec->has_checker && !spec->has_interactor)
        return err_field(err, field,
            "expected is missing; a test needs it when there is no checker and no interactor");
    return 0;
}

/* Matching takes up to the product of the lengths. A request must not be able to occupy the
 * server for hours. */
static int check_patterns(const struct judge_spec *spec, struct err *err)
{
    uint64_t names = 0;
    uint64_t patterns = 0;
    for (size_t i = 0; i < spec->test_count; i++)
        names += strlen(spec->tests[i].name) + 1;
    for (size_t i = 0; i < spec->group_count; i++) {
        for (size_t k = 0; k < spec->groups[i].tests.count; k++)
            patterns += strlen(spec->groups[i].tests.items[k]) + 1;
    }
    return names * patterns <= MATCH_MAX
               ? 0
               : err_field(err, "groups",
                     "the patterns are too many or too long for %zu tests; "
                     "use fewer or shorter ones",
                     spec->test_count);
}

int judge_spec_settle(struct judge_spec *spec, struct err *err)
{
    int r = 0;
    if (spec->test_count == 0)
        return err_field(err, "tests", "there is no test");
    if (spec->transcript && !spec->has_interactor)
        return err_field(err, "transcript", "there is a transcript only with an interactor");
    for (size_t i = 0; r == 0 && i < spec->test_count; i++)
        r = settle_test(spec, i, err);
    if (r == 0)
        r = check_patterns(spec, err);
    for (size_t i = 0; r == 0 && i < spec->group_count; i++)
        r = settle_group(spec, i, err);
    return r;
}
