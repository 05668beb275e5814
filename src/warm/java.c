/* SPDX-License-Identifier: Apache-2.0 */

/* hermes-java: a launcher of Java programs that waits between the start of the virtual machine
 * and that of the program (spawn/pool.h). It gets the arguments that `java` or `javac` would
 * get in the same box, as far as they do not depend on a request; argv[0] says which of the two
 * it replaces and where the JDK is. Once it has its package it does what the JDK's own launcher
 * does: it lets the JDK's LauncherHelper load the main class, calls main() from a thread that
 * has no other frame, and ends as that launcher would. So nothing of Hermes is in the program's
 * stack, class path or threads.
 *
 * It builds without a JDK: the native interface is a table of functions with fixed indices. The
 * few that are used are named below. */

#include "base/cleanup.h"
#include "base/str.h"
#include "warm/warm.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MAX_OPTIONS = 64,
    VERSION_1_6 = 0x00010006,
    LAUNCH_CLASS = 1, /* numbers of LauncherHelper for the thing to launch */
    LAUNCH_MODULE = 3,
    STACK_BYTES = 1 << 20, /* bytes; HotSpot's default */
    REHEARSALS = 3,        /* compilations before the box is ready */
    REHEARSAL_MAX = 1 << 20,
};

#define REHEARSAL_SOURCE "/usr/lib/hermes/Rehearsal.java"
#define REHEARSAL_CLASSES "/usr/lib/hermes/seed/ready/Rehearsal*.class"
#define REHEARSAL_DIR "/tmp/rehearsal"
#define COMPILER "jdk.compiler/com.sun.tools.javac.Main"

typedef void *ref; /* reference to an object; null after an exception */
typedef void *const **jni;
union value {
    uint8_t z;
    int32_t i;
    ref l;
};

/* Indices in struct JNINativeInterface. */
enum {
    JNI_DEFINE_CLASS = 5,
    JNI_FIND_CLASS = 6,
    JNI_EXCEPTION_OCCURRED = 15,
    JNI_EXCEPTION_DESCRIBE = 16,
    JNI_EXCEPTION_CLEAR = 17,
    JNI_PUSH_FRAME = 19,
    JNI_POP_FRAME = 20,
    JNI_NEW_OBJECT_A = 30,
    JNI_GET_METHOD = 33,
    JNI_CALL_VOID_A = 63,
    JNI_GET_STATIC_METHOD = 113,
    JNI_CALL_STATIC_OBJECT_A = 116,
    JNI_CALL_STATIC_INT_A = 131,
    JNI_CALL_STATIC_VOID_A = 143,
    JNI_GET_STATIC_FIELD = 144,
    JNI_GET_STATIC_BOOLEAN = 146,
    JNI_NEW_STRING_UTF = 167,
    JNI_NEW_OBJECT_ARRAY = 172,
    JNI_SET_ELEMENT = 174,
    JNI_NEW_BYTE_ARRAY = 176,
    JNI_SET_BYTES = 208,
};
enum { VM_DESTROY = 3, VM_DETACH = 5 }; /* indices in struct JNIInvokeInterface */

#define CALL(env, place, type, ...) (((type)(*(env))[place])((env), ##__VA_ARGS__))
typedef ref fn_ref(jni);
typedef void fn_void(jni);
typedef int32_t fn_int(jni);
typedef int32_t fn_int_int(jni, int32_t);
typedef ref fn_ref_ref(jni, ref);
typedef ref fn_ref_text(jni, const char *);
typedef ref fn_define(jni, const char *, ref, const void *, int32_t);
typedef void *fn_method(jni, ref, const char *, const char *);
typedef ref fn_call_ref(jni, ref, void *, const union value *);
typedef int32_t fn_call_int(jni, ref, void *, const union value *);
typedef void fn_call_void(jni, ref, void *, const union value *);
typedef uint8_t fn_get_boolean(jni, ref, void *);
typedef ref fn_new_array(jni, int32_t, ref, ref);
typedef ref fn_new_bytes(jni, int32_t);
typedef void fn_set_element(jni, ref, int32_t, ref);
typedef void fn_set_bytes(jni, ref, int32_t, int32_t, const char *);

struct vm_option {
    char *text;
    void *extra;
};
struct vm_args {
    int32_t version;
    int32_t count;
    struct vm_option *options;
    uint8_t ignore_unknown;
};
typedef int32_t fn_create(jni *vm, jni *env, struct vm_args *args);

static bool is_compiler;
static struct vm_option options[MAX_OPTIONS];
static int32_t option_count;
static fn_create *create_vm;
static int status = 1;

static void add_option(const char *first, const char *second)
{
    char *text;
    if (option_count < MAX_OPTIONS && asprintf(&text, "%s%s", first, second) >= 0)
        options[option_count++].text = text;
}

/* Makes the directories of the class path. The virtual machine takes a directory that does not
 * exist at its start for an archive later. */
static void make_class_path(const char *class_path)
{
    char part[256];
    while (*class_path) {
        size_t len = strcspn(class_path, ":");
        int n = snprintf(part, sizeof(part), "%.*s", (int)len, class_path);
        if (n < (int)sizeof(part) && str_has_prefix(part, "/box/"))
            (void)mkdir(part, 0755);
        class_path += len + (class_path[len] == ':');
    }
}

/* Turns arguments into options of the virtual machine, as the JDK's launchers do. */
static void read_options(int argc, char **argv)
{
    if (is_compiler) {
        add_option("--add-modules=", "ALL-DEFAULT");
        add_option("-Djdk.module.main=", "jdk.compiler");
    }
    for (int i = 1; i < argc; i++) {
        if (is_compiler && str_has_prefix(argv[i], "-J"))
            add_option(argv[i] + 2, "");
        else if (!is_compiler && str_eq(argv[i], "-cp") && i + 1 < argc) {
            make_class_path(argv[++i]);
            add_option("-Djava.class.path=", argv[i]);
        } else if (!is_compiler)
            add_option(argv[i], "");
    }
    add_option("-Dsun.java.launcher=", "SUN_STANDARD");
}

static size_t stack_bytes(void)
{
    size_t bytes = STACK_BYTES;
    for (int32_t i = 0; i < option_count; i++) {
        char *unit;
        if (!str_has_prefix(options[i].text, "-Xss"))
            continue;
        bytes = strtoull(options[i].text + 4, &unit, 10);
        bytes <<= *unit == 'g' ? 30 : *unit == 'm' ? 20 : *unit == 'k' ? 10 : 0;
    }
    return bytes;
}

static ref find_class(jni env, const char *name)
{
    return CALL(env, JNI_FIND_CLASS, fn_ref_text *, name);
}

static void *static_method(jni env, ref class, const char *name, const char *signature)
{
    return class ? CALL(env, JNI_GET_STATIC_METHOD, fn_method *, class, name, signature) : NULL;
}

static bool has_thrown(jni env)
{
    return CALL(env, JNI_EXCEPTION_OCCURRED, fn_ref *) != NULL;
}

/* Makes a string of the package, by the JDK's own rule for arguments. */
static ref make_string(jni env, ref helper, const char *text)
{
    int32_t len = (int32_t)strlen(text);
    void *make = static_method(env, helper, "makePlatformString", "(Z[B)Ljava/lang/String;");
    ref bytes = make ? CALL(env, JNI_NEW_BYTE_ARRAY, fn_new_bytes *, len) : NULL;
    if (!bytes)
        return NULL;
    CALL(env, JNI_SET_BYTES, fn_set_bytes *, bytes, 0, len, text);
    return CALL(env, JNI_CALL_STATIC_OBJECT_A, fn_call_ref *, helper, make,
        (union value[]){{.z = 1}, {.l = bytes}});
}

/* Makes a String[] of words[from...]. Leaves out options of the compiler that are for its
 * virtual machine. */
static ref make_strings(jni env, ref helper, const char *const *words, unsigned from)
{
    unsigned count = 0;
    for (unsigned i = from; words[i]; i++)
        count += !(is_compiler && str_has_prefix(words[i], "-J"));
    ref class = find_class(env, "java/lang/String");
    ref list =
        class ? CALL(env, JNI_NEW_OBJECT_ARRAY, fn_new_array *, (int32_t)count, class, NULL)
              : NULL;
    int32_t at = 0;
    for (unsigned i = from; list && words[i]; i++) {
        if (is_compiler && str_has_prefix(words[i], "-J"))
            continue;
        (void)CALL(env, JNI_PUSH_FRAME, fn_int_int *, 8);
        ref text = make_string(env, helper, words[i]);
        CALL(env, JNI_SET_ELEMENT, fn_set_element *, list, at++, text);
        (void)CALL(env, JNI_POP_FRAME, fn_ref_ref *, NULL);
    }
    return list;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    return remove(path);
}

/* Compiles a program that uses what most programs use, so that the compiler's classes are
 * loaded and its methods compiled. */
static void rehearse_compiler(jni env, ref helper)
{
    static const char *const words[] = {
        "-proc:none", "-encoding", "UTF-8", "-d", REHEARSAL_DIR, REHEARSAL_SOURCE, NULL};
    ref compiler = find_class(env, "com/sun/tools/javac/Main");
    void *compile = static_method(env, compiler, "compile", "([Ljava/lang/String;)I");
    if (!compile || mkdir(REHEARSAL_DIR, 0755) < 0)
        return;
    for (int i = 0; i < REHEARSALS && !has_thrown(env); i++)
        (void)CALL(env, JNI_CALL_STATIC_INT_A, fn_call_int *, compiler, compile,
            (union value[]){{.l = make_strings(env, helper, words, 0)}});
    (void)nftw(REHEARSAL_DIR, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static ref define_class(jni env, ref loader, const char *path)
{
    static char bytes[REHEARSAL_MAX];
    cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));
    return size > 0
               ? CALL(env, JNI_DEFINE_CLASS, fn_define *, NULL, loader, bytes, (int32_t)size)
               : NULL;
}

/* Runs a program that uses what most programs use, in a class loader of its own. glob() sorts
 * by name, so the outer class comes first, and an interface before the class that implements
 * it. */
static void rehearse_program(jni env)
{
    glob_t found;
    ref class = find_class(env, "java/security/SecureClassLoader");
    void *make = class ? CALL(env, JNI_GET_METHOD, fn_method *, class, "<init>", "()V") : NULL;
    ref loader = make ? CALL(env, JNI_NEW_OBJECT_A, fn_call_ref *, class, make, NULL) : NULL;
    ref program = NULL;
    if (!loader || glob(REHEARSAL_CLASSES, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc && !has_thrown(env); i++) {
        ref defined = define_class(env, loader, found.gl_pathv[i]);
        program = i == 0 ? defined : program;
    }
    globfree(&found);
    void *main = has_thrown(env) ? NULL : static_method(env, program, "rehearse", "()V");
    if (main)
        CALL(env, JNI_CALL_STATIC_VOID_A, fn_call_void *, program, main, NULL);
}

/* Frees memory that only the rehearsal needed. */
static void collect_garbage(jni env)
{
    ref system = find_class(env, "java/lang/System");
    void *gc = static_method(env, system, "gc", "()V");
    if (gc)
        CALL(env, JNI_CALL_STATIC_VOID_A, fn_call_void *, system, gc, NULL);
}

static void rehearse(jni env, ref helper)
{
    (void)CALL(env, JNI_PUSH_FRAME, fn_int_int *, 64);
    if (is_compiler)
        rehearse_compiler(env, helper);
    else
        rehearse_program(env);
    if (has_thrown(env))
        CALL(env, JNI_EXCEPTION_CLEAR, fn_void *);
    (void)CALL(env, JNI_POP_FRAME, fn_ref_ref *, NULL);
    collect_garbage(env);
}

/* Index of the main class among the arguments of `java`. */
static unsigned find_main(const char *const *words)
{
    unsigned i = 1;
    while (words[i] && words[i][0] == '-')
        i += str_eq(words[i], "-cp") && words[i + 1] ? 2 : 1;
    return i;
}

/* Sets sun.java.command as the JDK's launcher does: the main class and its arguments. */
static void tell_command(jni env, ref helper, const char *const *words, unsigned from)
{
    char text[4096];
    size_t used = 0;
    for (unsigned i = from; words[i] && used < sizeof(text); i++)
        used += (size_t)snprintf(
            text + used, sizeof(text) - used, "%s%s", i > from ? " " : "", words[i]);
    ref system = find_class(env, "java/lang/System");
    void *set = static_method(
        env, system, "setProperty", "(Ljava/lang/String;Ljava/lang/String;)Ljava/lang/String;");
    ref key = set ? CALL(env, JNI_NEW_STRING_UTF, fn_ref_text *, "sun.java.command") : NULL;
    ref value = key ? make_string(env, helper, text) : NULL;
    if (value)
        (void)CALL(env, JNI_CALL_STATIC_OBJECT_A, fn_call_ref *, system, set,
            (union value[]){{.l = key}, {.l = value}});
}

/* What LauncherHelper has found out about main(). Java versions up to 21 have no such
 * fields, and only one kind of main(). */
static bool helper_says(jni env, ref helper, const char *name, bool otherwise)
{
    void *field = CALL(env, JNI_GET_STATIC_FIELD, fn_method *, helper, name, "Z");
    if (field)
        return CALL(env, JNI_GET_STATIC_BOOLEAN, fn_get_boolean *, helper, field);
    CALL(env, JNI_EXCEPTION_CLEAR, fn_void *);
    return otherwise;
}

static void call_main(jni env, ref helper, ref class, ref args)
{
    const union value values[] = {{.l = args}};
    bool is_static = helper_says(env, helper, "isStaticMain", true);
    const char *signature =
        helper_says(env, helper, "noArgMain", false) ? "()V" : "([Ljava/lang/String;)V";
    if (is_static) {
        void *main = static_method(env, class, "main", signature);
        if (main)
            CALL(env, JNI_CALL_STATIC_VOID_A, fn_call_void *, class, main, values);
        return;
    }
    void *make = CALL(env, JNI_GET_METHOD, fn_method *, class, "<init>", "()V");
    ref object = make ? CALL(env, JNI_NEW_OBJECT_A, fn_call_ref *, class, make, NULL) : NULL;
    void *main =
        object ? CALL(env, JNI_GET_METHOD, fn_method *, class, "main", signature) : NULL;
    if (main)
        CALL(env, JNI_CALL_VOID_A, fn_call_void *, object, main, values);
}

/* Loads and calls main(); returns the status that the JDK's launcher would end with. */
static int run_main(jni env, ref helper, const char *const *words)
{
    unsigned at = is_compiler ? 0 : find_main(words);
    void *load = static_method(
        env, helper, "checkAndLoadMain", "(ZILjava/lang/String;)Ljava/lang/Class;");
    if (!load || !words[at])
        return 1;
    if (!is_compiler)
        tell_command(env, helper, words, at);
    ref what = make_string(env, helper, is_compiler ? COMPILER : words[at]);
    ref class = CALL(env, JNI_CALL_STATIC_OBJECT_A, fn_call_ref *, helper, load,
        (union value[]){
            {.z = 1}, {.i = is_compiler ? LAUNCH_MODULE : LAUNCH_CLASS}, {.l = what}});
    ref args = class ? make_strings(env, helper, words, at + 1) : NULL;
    if (!args) {
        CALL(env, JNI_EXCEPTION_DESCRIBE, fn_void *);
        return 1;
    }
    call_main(env, helper, class, args);
    return has_thrown(env);
}

static void *live(void *unused)
{
    static const char *words[4097];
    struct vm_args args = {.version = VERSION_1_6, .count = option_count, .options = options};
    jni vm;
    jni env;
    if (create_vm(&vm, &env, &args) != 0)
        return NULL;
    ref helper = find_class(env, "sun/launcher/LauncherHelper");
    if (!helper)
        return NULL;
    rehearse(env, helper);
    if (hermes_warm_park() < 0)
        return NULL;
    hermes_warm_begin();
    hermes_warm_take_env();
    for (unsigned i = 0; i < 4096 && (words[i] = hermes_warm_arg(i)); i++)
        ;
    status = run_main(env, helper, words);
    /* Detaching prints what main() threw; destroying waits for the program's threads. */
    (void)CALL(vm, VM_DETACH, fn_int *);
    (void)CALL(vm, VM_DESTROY, fn_int *);
    return NULL;
}

/* The virtual machine needs a thread whose stack it can fence off, so it does not run in the
 * first one. */
int main(int argc, char **argv)
{
    char path[4096];
    pthread_t thread;
    pthread_attr_t attr;
    char *slash = strrchr(argv[0], '/');
    is_compiler = str_has_suffix(argv[0], "/javac");
    if (!slash || snprintf(path, sizeof(path), "%.*s/../lib/server/libjvm.so",
                      (int)(slash - argv[0]), argv[0]) >= (int)sizeof(path))
        return 1;
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    create_vm = library ? (fn_create *)dlsym(library, "JNI_CreateJavaVM") : NULL;
    if (!create_vm)
        return 1;
    read_options(argc, argv);
    if (pthread_attr_init(&attr) != 0 || pthread_attr_setstacksize(&attr, stack_bytes()) != 0 ||
        pthread_create(&thread, &attr, live, NULL) != 0 || pthread_join(thread, NULL) != 0)
        return 1;
    return status;
}
