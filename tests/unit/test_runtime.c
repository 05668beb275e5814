/* SPDX-License-Identifier: Apache-2.0 */

/* Facts about the registry of languages and about plans. Plans of a language are tried only
 * where its toolchain is installed; loading is tried for all. */

#include "test.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/str.h"
#include "run/plan.h"
#include "runtime_fixture.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static void all_shipped_languages_load(void **state)
{
    static const char *const names[] = {"bash", "bun", "c", "cpp", "deno", "go", "image-build",
        "java", "javascript", "lua", "native", "perl", "php", "python", "r", "ruby", "rust",
        "shell-parse", "sql", "typescript"};
    CLEANUP(runtime_registry_done) struct runtime_registry reg = {0};
    struct err err = {0};

    assert_int_equal(runtime_load(&reg, fixture_dirs(), NULL, &err), 0);
    assert_int_equal(reg.count, COUNT_OF(names));
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        assert_string_equal(reg.items[i].name, names[i]);
        assert_true(reg.items[i].available == (reg.items[i].missing == NULL));
    }
    assert_string_equal(runtime_find(&reg, "py")->name, "python");
    assert_null(runtime_find(&reg, "brainfuck"));
    assert_null(runtime_find(&reg, "image-build"));
    assert_true(runtime_find_internal(&reg, "image-build")->is_internal);
    assert_null(runtime_find_internal(&reg, "python"));
    assert_true(runtime_find(&reg, "native")->available);
}

static void one_language_is_found_by_name_alias_or_file(void **state)
{
    static const char *const rows[][2] = {{"python", "python"}, {"py", "python"},
        {"/x/y.z/hello.py", "python"}, {"a.b.cc", "cpp"}, {"x.C", "cpp"}, {"x.c", "c"},
        {"c++", "cpp"}, {"lua5.4", "lua"}, {"Main.java", "java"}, {"x.R", "r"}, {"R", "r"},
        {"./a.out", "native"}, {"elf", "native"}, {"node", "javascript"},
        {"x.mts", "typescript"}};

    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(runtime_registry_done) struct runtime_registry reg = {0};
        struct err err = {0};

        assert_int_equal(runtime_load(&reg, fixture_dirs(), rows[i][0], &err), 0);
        assert_int_equal(reg.count, 1);
        assert_string_equal(reg.items[0].name, rows[i][1]);
    }
}

static void unknown_languages_are_refused_by_field(void **state)
{
    static const char *const names[] = {"brainfuck", "", ".", "..", "../c", "/etc/passwd",
        "x.zzz", "name", "argv", "-O2", "python/../c"};

    for (size_t i = 0; i < COUNT_OF(names); i++) {
        struct runtime_registry reg = {0};
        struct err err = {0};

        assert_int_equal(runtime_load(&reg, fixture_dirs(), names[i], &err), -EINVAL);
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(err.field, "language");
    }
}

/* Loads a registry to which one runtime.json was added; what it says must be refused. */
static void check_refused(const char *text, const char *field)
{
    cleanup_dir char *dir = fixture_make_dir();
    struct runtime_registry reg = {0};
    struct err err = {0};

    fixture_write(dir, "x/runtime.json", text);
    const struct lang_dirs dirs = {.runtimes = fixture_dirs()->runtimes, .more = dir};
    int r = runtime_load(&reg, &dirs, NULL, &err);
    assert_true(r < 0);
    assert_int_equal(err.code, ERR_INVALID);
    assert_string_equal(err.field, field);
    assert_non_null(strstr(err.message, "x/runtime.json"));
}

#define HEAD "{\"name\":\"x\",\"main_file\":\"m\",\"package\":\"p\","
#define RUN "\"run\":{\"argv\":[\"/bin/x\"]}"

static void bad_files_are_refused_by_name_and_field(void **state)
{
    check_refused("{", "");
    check_refused("[]", "");
    check_refused(HEAD "\"name\":\"x\"}", "");
    check_refused(HEAD "\"toolchain\":[]," RUN ",\"extra\":1}", "extra");
    check_refused("{\"main_file\":\"m\"}", "name");
    check_refused("{\"name\":\"y\",\"main_file\":\"m\",\"package\":\"p\"}", "name");
    check_refused("{\"name\":\"x\",\"main_file\":\"../m\",\"package\":\"p\"}", "main_file");
    check_refused(HEAD "\"aliases\":\"a\"}", "aliases");
    check_refused(HEAD "\"limits\":{\"memory_mb\":0}}", "limits");
    check_refused(HEAD "\"limits\":{\"memory\":1}}", "limits");
    check_refused(HEAD "\"prepare\":\"magic\"}", "prepare");
    check_refused(HEAD RUN "}", "toolchain");
    check_refused(HEAD "\"toolchain\":[]}", "run");
    check_refused(HEAD "\"toolchain\":[3]," RUN "}", "toolchain[0]");
    check_refused(HEAD "\"toolchain\":[{\"home\":\"/\"}]," RUN "}", "toolchain[0].program");
    check_refused(HEAD "\"toolchain\":[],\"run\":{}}", "run");
    check_refused(HEAD "\"toolchain\":[],\"run\":{\"argv\":[\"sh\"]}}", "run.argv[0]");
    check_refused(HEAD "\"toolchain\":[],\"run\":{\"argv\":[\"/x/{entry}\"]}}", "run.argv[0]");
    check_refused(HEAD "\"toolchain\":[],\"run\":{\"argv\":[\"{args}\"]}}", "run.argv[0]");
    check_refused(
        HEAD "\"toolchain\":[],\"run\":{\"argv\":[\"/x\",\"{nope}\"]}}", "run.argv[1]");
    check_refused(HEAD "\"toolchain\":[],\"run\":{\"argv\":\"/x -c\"}}", "run.argv");
    check_refused(HEAD
        "\"toolchain\":[],\"run\":{\"argv\":[\"/x\"],\"env\":{\"A\":\"{args}\"}}}",
        "run.env[0]");
    check_refused(
        HEAD "\"toolchain\":[],\"run\":{\"argv\":[\"/x\"],\"paths\":[\"x\"]}}", "run.paths");
    check_refused(HEAD "\"aliases\":[\"py\"],\"toolchain\":[]," RUN "}", "aliases");
}

static void an_operators_language_is_added(void **state)
{
    cleanup_dir char *dir = fixture_make_dir();
    CLEANUP(runtime_registry_done) struct runtime_registry reg = {0};
    struct err err = {0};

    fixture_write(dir, "x/runtime.json",
        HEAD "\"extensions\":[\".xx\"],\"toolchain\":[{\"home\":\"/nonexistent/*\","
             "\"program\":\"bin/x\"}],\"run\":{\"argv\":[\"{home}/bin/x\",\"{entry}\"]}}");
    const struct lang_dirs dirs = {.runtimes = fixture_dirs()->runtimes, .more = dir};
    assert_int_equal(runtime_load(&reg, &dirs, "hello.xx", &err), 0);
    assert_string_equal(reg.items[0].name, "x");
    assert_false(reg.items[0].available);
    assert_non_null(strstr(reg.items[0].missing, "install p"));
}

/* What the server gets: the same languages, without a look at the host. */
static void a_packed_registry_is_the_same(void **state)
{
    CLEANUP(runtime_registry_done) struct runtime_registry reg = {0};
    CLEANUP(runtime_registry_done) struct runtime_registry copy = {0};
    cleanup_buf struct buf packed;
    cleanup_buf struct buf again;
    struct err err = {0};

    buf_init(&packed, 64 << 20);
    buf_init(&again, 64 << 20);
    assert_int_equal(runtime_load(&reg, fixture_dirs(), NULL, &err), 0);
    assert_int_equal(runtime_load_sdk(&reg, &err), 0);
    assert_int_equal(runtime_pack(&reg, &packed), 0);
    assert_int_equal(runtime_unpack(&packed, &copy, &err), 0);
    assert_int_equal(copy.count, reg.count);
    for (size_t i = 0; i < reg.count; i++) {
        const struct runtime *a = &reg.items[i], *b = &copy.items[i];
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->available, b->available);
        assert_true(str_eq(a->home ? a->home : "", b->home ? b->home : ""));
        assert_int_equal(a->run_root.path_count, b->run_root.path_count);
        assert_int_equal(a->compile_root.path_count, b->compile_root.path_count);
        assert_int_equal(a->sdk.count, b->sdk.count);
    }
    assert_int_equal(runtime_pack(&copy, &again), 0);
    assert_int_equal(again.len, packed.len);
    assert_memory_equal(again.data, packed.data, packed.len);
    for (size_t len = 0; len < packed.len; len += packed.len / 50 + 1) { /* cut short */
        struct runtime_registry none = {0};
        struct buf cut = {.data = packed.data, .len = len};
        assert_true(runtime_unpack(&cut, &none, &err) < 0);
    }
}

/* Plans `spec` in a shipped language; false when its toolchain is not installed. */
static bool plan(const char *language, struct run_spec *spec, struct run_plan *ret, int *ret_r,
    struct err *err)
{
    CLEANUP(runtime_registry_done) struct runtime_registry reg = {0};

    *ret = (struct run_plan){0};
    *err = (struct err){0};
    assert_int_equal(runtime_load(&reg, fixture_dirs(), language, err), 0);
    if (!reg.items[0].available) {
        print_message("# %s: %s\n", language, reg.items[0].missing);
        return false;
    }
    struct run_limits maxima;
    limits_maxima(&maxima);
    spec->runtime = &reg.items[0];
    *ret_r = run_plan_make(spec, &maxima, ret, err);
    spec->runtime = NULL; /* goes with the registry */
    return true;
}

static bool has_env(const struct run_stage *stage, const char *assignment)
{
    return strv_has(&stage->env, assignment);
}

static void arguments_and_variables_stay_what_they_are(void **state)
{
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_plan_done) struct run_plan p = {0};
    struct err err;
    int r;

    run_spec_init(&spec);
    fixture_add_file(&spec, "-c", "print(1)");
    strv_add(&spec.args, "$(id); {home}");
    strv_add(&spec.env, "PATH=/mine");
    strv_add(&spec.env, "X={entry}");
    if (!plan("python", &spec, &p, &r, &err))
        return;
    assert_int_equal(r, 0);
    assert_false(p.has_compile);
    assert_int_equal(p.run.argv.count, 3);
    assert_string_equal(p.run.argv.items[1], "./-c");
    assert_string_equal(p.run.argv.items[2], "$(id); {home}");
    assert_true(has_env(&p.run, "PATH=/mine"));
    assert_true(has_env(&p.run, "X={entry}"));
    assert_true(has_env(&p.run, "HOME=/box"));
    assert_false(has_env(&p.run, "PATH=/usr/local/bin:/usr/bin:/bin"));
    assert_int_equal(p.run.limits.wall_ms, 10000);
}

/* It is one argument of the box's sh, whatever is in it; a compiled language lends its tools.
 */
static void a_command_line_takes_the_place_of_both_stages(void **state)
{
    const char *const languages[] = {"python", "c"};

    for (size_t i = 0; i < 2; i++) {
        CLEANUP(run_spec_done) struct run_spec spec;
        CLEANUP(run_plan_done) struct run_plan p = {0};
        struct err err;
        int r;

        run_spec_init(&spec);
        spec.shell = xstrdup("echo {home}; exit");
        strv_add(&spec.env, "HOME=/tmp");
        if (!plan(languages[i], &spec, &p, &r, &err))
            continue;
        assert_int_equal(r, 0);
        assert_false(p.has_compile);
        assert_int_equal(p.run.in_toolchain, i == 1);
        assert_true(p.run.exec > 0);
        assert_int_equal(p.run.argv.count, 3);
        assert_string_equal(p.run.argv.items[0], "sh");
        assert_string_equal(p.run.argv.items[2], "echo {home}; exit");
        assert_true(has_env(&p.run, "HOME=/tmp"));
    }
}

static void the_sdk_is_read_when_asked_for(void **state)
{
    CLEANUP(runtime_registry_done) struct runtime_registry reg = {0};
    struct err err = {0};

    assert_int_equal(runtime_load(&reg, fixture_dirs(), "python", &err), 0);
    assert_int_equal(reg.items[0].sdk.count, 0);
    assert_int_equal(runtime_load_sdk(&reg, &err), 0);
    assert_int_equal(reg.items[0].sdk.count, 1);
    assert_string_equal(reg.items[0].sdk.items[0].name, "sdk.py");
    strv_add(&reg.items[0].sdk_names, "missing");
    assert_int_equal(runtime_load_sdk(&reg, &err), -ENOENT);
    assert_non_null(strstr(err.message, "/sdk/missing"));
}

static void nothing_of_the_hosts_environment_gets_in(void **state)
{
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_plan_done) struct run_plan p = {0};
    struct err err;
    int r;

    run_spec_init(&spec);
    fixture_add_file(&spec, "main",
        "\x7f"
        "ELF");
    (void)setenv("HERMES_CANARY", "secret", 1);
    assert_true(plan("native", &spec, &p, &r, &err));
    (void)unsetenv("HERMES_CANARY");
    for (size_t i = 0; i < p.run.env.count; i++)
        assert_null(strstr(p.run.env.items[i], "secret"));
    assert_string_equal(p.run.program, "main");
    assert_string_equal(p.run.argv.items[0], "/box/main");
}

static void the_entry_is_chosen_or_asked_for(void **state)
{
    static const struct {
        const char *files[3];
        const char *entry;
        const char *expected; /* NULL: refused */
        const char *field;
    } rows[] = {
        {{"main.sh", "x.sh"}, NULL, "main.sh", NULL},
        {{"a/x.sh", "data.txt"}, NULL, "a/x.sh", NULL},
        {{"noext"}, NULL, "noext", NULL},
        {{"a/x.sh", "b.sh"}, "b.sh", "b.sh", NULL},
        {{"a.sh", "b.sh"}, NULL, NULL, "entry"},
        {{"a.txt", "b.txt"}, NULL, NULL, "entry"},
        {{"main.sh"}, "other.sh", NULL, "entry"},
        {{NULL}, NULL, NULL, "code"},
    };

    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(run_spec_done) struct run_spec spec;
        CLEANUP(run_plan_done) struct run_plan p = {0};
        struct err err;
        int r;

        run_spec_init(&spec);
        for (size_t k = 0; k < 3 && rows[i].files[k] != NULL; k++)
            fixture_add_file(&spec, rows[i].files[k], "");
        spec.entry = rows[i].entry != NULL ? xstrdup(rows[i].entry) : NULL;
        assert_true(plan("bash", &spec, &p, &r, &err));
        if (rows[i].expected != NULL) {
            assert_int_equal(r, 0);
            assert_string_equal(p.run.argv.items[1], rows[i].expected);
        } else {
            assert_int_equal(r, -EINVAL);
            assert_string_equal(err.field, rows[i].field);
        }
    }
}

static int try_compile_arg(
    const char *language, const char *file, const char *arg, struct err *err)
{
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_plan_done) struct run_plan p = {0};
    int r = 0;

    run_spec_init(&spec);
    fixture_add_file(&spec, file, "");
    strv_add(&spec.compile_args, arg);
    return plan(language, &spec, &p, &r, err) ? r : 1;
}

static void only_listed_compiler_options_pass(void **state)
{
    static const char *const bad[] = {"-fplugin=/box/x.so", "-wrapper", "sh,-c,id", "-B/work/",
        "-specs=/box/s", "@/etc/hermes-canary", "-o", "/usr/bin/x", "-x", "none", ";id",
        "$(id)", "-O2\n", "-O2 -o x", "", "-Wl,-rpath,/x", "-Wa,@x", "-Wp,-MD,x", "-include",
        "-I/etc", "-l:x", "-fsanitize=../x", "-save-temps", "-dumpdir", "-iplugindir=x",
        "-fdump-tree-all", "-Xlinker", "-T", "--param", "-std", "-MF", "-aux-info"};
    static const char *const good[] = {"-O0", "-O3", "-std=c11", "-DX=1", "-DPATH=\"a/b c\"",
        "-Wall", "-Werror=vla", "-fsanitize=address,undefined", "-pthread", "-lpthread", "-g",
        "-march=native", "-Iinclude/x", "-static"};
    struct err err;

    for (size_t i = 0; i < COUNT_OF(bad); i++) {
        int r = try_compile_arg("c", "main.c", bad[i], &err);

        if (r == 1)
            return;
        assert_int_equal(r, -EINVAL);
        assert_string_equal(err.field, "compile_args");
        assert_true(try_compile_arg("cpp", "main.cpp", bad[i], &err) != 0);
    }
    for (size_t i = 0; i < COUNT_OF(good); i++)
        assert_int_equal(try_compile_arg("c", "main.c", good[i], &err), 0);
    assert_int_equal(try_compile_arg("bash", "main.sh", "-O2", &err), -EINVAL);
    assert_string_equal(err.field, "compile_args");
}

static void c_compiles_all_its_sources_without_the_users_environment(void **state)
{
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_plan_done) struct run_plan p = {0};
    struct err err;
    int r;

    run_spec_init(&spec);
    fixture_add_file(&spec, "b.c", "");
    fixture_add_file(&spec, "b.h", "");
    fixture_add_file(&spec, "-a.c", "");
    strv_add(&spec.env, "CPATH=/box");
    if (!plan("c", &spec, &p, &r, &err))
        return;
    assert_int_equal(r, 0);
    assert_true(p.has_compile);
    assert_true(strv_has(&p.compile.argv, "b.c"));
    assert_true(strv_has(&p.compile.argv, "./-a.c"));
    assert_false(strv_has(&p.compile.argv, "b.h"));
    assert_false(has_env(&p.compile, "CPATH=/box"));
    assert_true(has_env(&p.run, "CPATH=/box"));
    assert_string_equal(p.compile.artefacts.items[0], "main");
    assert_int_equal(p.compile.limits.memory_mb, 1024);
    assert_int_equal(p.run.limits.memory_mb, 256);

    CLEANUP(run_spec_done) struct run_spec none;
    CLEANUP(run_plan_done) struct run_plan q = {0};
    run_spec_init(&none);
    fixture_add_file(&none, "x.h", "");
    assert_true(plan("c", &none, &q, &r, &err));
    assert_int_equal(r, -EINVAL);
    assert_string_equal(err.field, "files");
}

static void java_runs_the_class_with_main_from_a_file_of_its_name(void **state)
{
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_plan_done) struct run_plan p = {0};
    struct err err;
    int r;

    run_spec_init(&spec);
    fixture_add_file(&spec, "Util.java", "package a; class Util {}");
    fixture_add_file(&spec, "Main.java",
        "package a; public class Foo { public static void main(String[] x) {} }");
    spec.limits.memory_mb = 300;
    if (!plan("java", &spec, &p, &r, &err))
        return;
    assert_int_equal(r, 0);
    assert_true(strv_has(&p.compile.argv, "Foo.java"));
    assert_false(strv_has(&p.compile.argv, "Main.java"));
    assert_non_null(run_files_find(&p.compile.files, "Foo.java"));
    assert_true(strv_has(&p.run.argv, "a.Foo"));
    assert_true(strv_has(&p.run.argv, "-Xmx200m"));
}

static void projects_of_go_and_rust_are_given_or_made(void **state)
{
    CLEANUP(run_spec_done) struct run_spec go, rust;
    CLEANUP(run_plan_done) struct run_plan p = {0}, q = {0};
    struct err err;
    int r;

    run_spec_init(&go);
    fixture_add_file(&go, "cmd/x/main.go", "package main");
    if (plan("go", &go, &p, &r, &err)) {
        assert_int_equal(r, 0);
        assert_non_null(run_files_find(&p.compile.files, "go.mod"));
        assert_true(strv_has(&p.compile.argv, "./cmd/x"));
    }
    run_spec_init(&rust);
    fixture_add_file(&rust, "src/main.rs", "fn main() {}");
    fixture_add_file(
        &rust, "Cargo.toml", "[package]\nname = \"my-prog\"\n[dependencies]\nname = \"x\"\n");
    if (plan("rust", &rust, &q, &r, &err)) {
        assert_int_equal(r, 0);
        assert_int_equal(q.compile.exec, 1);
        assert_string_equal(q.compile.program, "target/release/my-prog");
        assert_true(str_has_suffix(q.compile.argv.items[0], "/cargo"));
    }
}

static void the_documentation_lists_every_language(void **state)
{
    cleanup_free char *path = xasprintf("%s/../docs/runtimes.md", fixture_dirs()->runtimes);
    CLEANUP(runtime_registry_done) struct runtime_registry reg = {0};
    cleanup_buf struct buf text = {0};
    struct err err = {0};

    buf_init(&text, 1 << 20);
    assert_int_equal(fs_read_file(AT_FDCWD, path, &text), 0);
    assert_int_equal(runtime_load(&reg, fixture_dirs(), NULL, &err), 0);
    for (size_t i = 0; i < reg.count; i++) {
        if (reg.items[i].is_internal)
            continue;
        cleanup_free char *row = xasprintf("\n| `%s` | ", reg.items[i].name);
        const char *at = strstr(text.data, row);

        assert_non_null(at);
        for (size_t k = 0; k < reg.items[i].aliases.count; k++) {
            cleanup_free char *alias = xasprintf("`%s`", reg.items[i].aliases.items[k]);
            const char *found = strstr(at + strlen(row), alias);

            assert_non_null(found);
            assert_true(found < strchr(at + 1, '\n'));
        }
    }
}

/* Every front door plans, so a plan refuses what each of them must refuse. */
static void a_plan_checks_files_and_limits(void **state)
{
    static const char *const second[] = {"a", "a/b", "../a"};
    struct err err;
    int r;

    for (size_t i = 0; i < 3; i++) {
        CLEANUP(run_spec_done) struct run_spec spec;
        CLEANUP(run_plan_done) struct run_plan p = {0};

        run_spec_init(&spec);
        fixture_add_file(&spec, "a", "");
        fixture_add_file(&spec, second[i], "");
        if (!plan("python", &spec, &p, &r, &err))
            return;
        assert_int_equal(r, -EINVAL);
        assert_string_equal(err.field, "files");
    }
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_plan_done) struct run_plan p = {0};

    run_spec_init(&spec);
    fixture_add_file(&spec, "main.c", "int main(void) { return 0; }");
    spec.limits = (struct run_limits){.memory_mb = 100, .processes = 7};
    spec.compile_limits = (struct run_limits){.memory_mb = 300, .processes = 5};
    if (!plan("c", &spec, &p, &r, &err))
        return;
    assert_int_equal(r, 0);
    assert_ptr_equal(p.spec, &spec);
    assert_int_equal(run_plan_need(&p).memory_mb, 300);
    assert_int_equal(run_plan_need(&p).processes, 7);
    run_plan_done(&p);
    spec.compile_limits.memory_mb = 1 << 20;
    assert_true(plan("c", &spec, &p, &r, &err));
    assert_int_equal(r, -EINVAL);
    assert_string_equal(err.field, "compile_limits.memory_mb");
}

static void loading_one_language_is_quick(void **state)
{
    uint64_t best_ns = UINT64_MAX;

    for (int i = 0; i < 20; i++) {
        CLEANUP(runtime_registry_done) struct runtime_registry reg = {0};
        struct err err = {0};
        uint64_t start_ns = clock_ns();

        assert_int_equal(runtime_load(&reg, fixture_dirs(), "hello.py", &err), 0);
        uint64_t ns = clock_ns() - start_ns;
        best_ns = ns < best_ns ? ns : best_ns;
    }
    print_message("# loading python by file name: %.0f us\n", (double)best_ns / 1000);
    /* 60 us here; a limit that only a mistake such as parsing everything can miss. */
    assert_true(best_ns < 5000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_shipped_languages_load),
        cmocka_unit_test(one_language_is_found_by_name_alias_or_file),
        cmocka_unit_test(unknown_languages_are_refused_by_field),
        cmocka_unit_test(bad_files_are_refused_by_name_and_field),
        cmocka_unit_test(a_packed_registry_is_the_same),
        cmocka_unit_test(an_operators_language_is_added),
        cmocka_unit_test(arguments_and_variables_stay_what_they_are),
        cmocka_unit_test(a_command_line_takes_the_place_of_both_stages),
        cmocka_unit_test(the_sdk_is_read_when_asked_for),
        cmocka_unit_test(nothing_of_the_hosts_environment_gets_in),
        cmocka_unit_test(the_entry_is_chosen_or_asked_for),
        cmocka_unit_test(only_listed_compiler_options_pass),
        cmocka_unit_test(c_compiles_all_its_sources_without_the_users_environment),
        cmocka_unit_test(java_runs_the_class_with_main_from_a_file_of_its_name),
        cmocka_unit_test(projects_of_go_and_rust_are_given_or_made),
        cmocka_unit_test(the_documentation_lists_every_language),
        cmocka_unit_test(a_plan_checks_files_and_limits),
        cmocka_unit_test(loading_one_language_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
