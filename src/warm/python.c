/* SPDX-License-Identifier: Apache-2.0 */

/* libhermes-warm.so as a module of Python (runtimes/python/zygote.py). ctypes would work, too,
 * but it and libffi are mappings and memory that every box copies. Python's interface for
 * modules has a stable ABI. The few functions and structures that are needed are declared here,
 * the functions weak, because Node loads the same library and does not have them. */

#include "warm/warm.h"

#include <stddef.h>
#include <sys/types.h>

typedef struct object {
    ssize_t references;
    void *type;
} object;

typedef object *method(object *self, object *arg);

enum { NO_ARGUMENT = 4, ONE_ARGUMENT = 8 };

struct method_def {
    const char *name;
    method *run;
    int flags;
    const char *doc;
};

struct module_slot {
    int slot;
    void *value;
};

struct module_def {
    object head;
    object *(*init)(void);
    ssize_t index;
    object *copy;
    const char *name;
    const char *doc;
    ssize_t size;
    struct method_def *methods;
    struct module_slot *slots;
    void *traverse, *clear, *free;
};

#define PYTHON_API extern __attribute__((weak))
PYTHON_API object *PyModuleDef_Init(struct module_def *def);
PYTHON_API object *PyLong_FromLong(long value);
PYTHON_API long PyLong_AsLong(object *value);
PYTHON_API object *Py_BuildValue(const char *format, ...);

#define NUMBER(name)                                                                           \
    static object *name(object *self, object *arg)                                             \
    {                                                                                          \
        return PyLong_FromLong(hermes_warm_##name());                                          \
    }
NUMBER(serve)
NUMBER(scratch)
NUMBER(no_scratch)
NUMBER(is_parked)
NUMBER(begin)
NUMBER(has_env)

static object *gather(object *self, object *arg)
{
    hermes_warm_gather();
    return Py_BuildValue("");
}

static object *leave(object *self, object *status)
{
    hermes_warm_exit((int)PyLong_AsLong(status));
}

static object *adopt(object *self, object *channel)
{
    return PyLong_FromLong(hermes_warm_adopt((int)PyLong_AsLong(channel)));
}

/* An argument as bytes, or None past the last. */
static object *word(object *self, object *at)
{
    return Py_BuildValue("y", hermes_warm_arg((unsigned)PyLong_AsLong(at)));
}

static object *variable(object *self, object *at)
{
    return Py_BuildValue("y", hermes_warm_env((unsigned)PyLong_AsLong(at)));
}

EXPORT object *PyInit_hermes_warm(void);
EXPORT object *PyInit_hermes_warm(void)
{
    static struct method_def methods[] = {{"serve", serve, NO_ARGUMENT, NULL},
        {"scratch", scratch, NO_ARGUMENT, NULL}, {"no_scratch", no_scratch, NO_ARGUMENT, NULL},
        {"gather", gather, NO_ARGUMENT, NULL}, {"is_parked", is_parked, NO_ARGUMENT, NULL},
        {"begin", begin, NO_ARGUMENT, NULL}, {"has_env", has_env, NO_ARGUMENT, NULL},
        {"adopt", adopt, ONE_ARGUMENT, NULL}, {"arg", word, ONE_ARGUMENT, NULL},
        {"env", variable, ONE_ARGUMENT, NULL}, {"exit", leave, ONE_ARGUMENT, NULL}, {0}};
    static struct module_slot slots[] = {{0}};
    static struct module_def def = {
        .head.references = 1, .name = "hermes_warm", .methods = methods, .slots = slots};
    return PyModuleDef_Init(&def);
}
