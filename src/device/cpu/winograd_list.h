/* winograd_list.h: the forms, built from the inlined parts of winograd_forms.c, which includes this
 * once per instruction set (hence no include guard), with TARGET (an attribute) and NAMED (names
 * with an ending of their own). */
#define RUN(name, side, n, step, ...)                                                              \
    TARGET static void NAMED(name)(const tile_run *r, int c, column *strip, float *to,             \
                                   size_t place) {                                                 \
        any_run(r, c, strip, to, place, side, n, step, (line_set){__VA_ARGS__});                   \
    }
RUN(input_run, 6, 6, 4, input_line, input_two, input_three, NULL)
RUN(gradient_run, 4, 6, 4, gradient_line, gradient_two, gradient_three, NULL)
RUN(six_input_run, 8, 8, 6, six_input_line, .four = six_input_four)
RUN(six_gradient_run, 6, 8, 6, six_gradient_line, .four = six_gradient_four)
RUN(strided_input_run, 9, 9, 8, strided_input_line, .three = strided_input_three)
RUN(strided_gradient_run, 4, 9, 4, strided_gradient_line, .three = strided_gradient_three)
RUN(strided_data_run, 5, 9, 4, strided_data_line, .three = strided_data_three)

#define OUTPUT(name, n, side, ...)                                                                 \
    TARGET static void NAMED(name)(const float *from, size_t place, const tile_out *t, float *to,  \
                                   tile_sums *sums) {                                              \
        const line_set f = {__VA_ARGS__};                                                          \
        if (t->down == EDGE_NONE && t->across == EDGE_NONE)                                        \
            choose_output(from, place, t, to, sums, n, side, f, false);                            \
        else                                                                                       \
            choose_output(from, place, t, to, sums, n, side, f, true);                             \
    }
OUTPUT(output, 6, 4, output_line, output_two, output_three, NULL)
OUTPUT(six_output, 8, 6, six_output_line, .four = six_output_four)
OUTPUT(strided_output, 9, 4, strided_output_line, .three = strided_output_three)
OUTPUT(strided_data_output, 9, 8, strided_data_output_line, .three = strided_data_output_three)

#define FILTERS(name, n, f)                                                                        \
    TARGET static void NAMED(name)(quad(*g)[9], float *to, size_t input, size_t next) {            \
        any_filters(g, to, input, next, n, f);                                                     \
    }
FILTERS(filters, 6, filter_line)
FILTERS(six_filters, 8, six_filter_line)
FILTERS(strided_filters, 6, strided_filter_line)

#define BACK(name, n, f)                                                                           \
    TARGET static void NAMED(name)(const float *c, size_t place, int ci, bool add, float *dw) {    \
        any_back(c, place, ci, add, dw, n, f);                                                     \
    }
BACK(back, 6, filter_back_line)
BACK(six_back, 8, six_filter_back_line)
BACK(strided_back, 6, strided_filter_back_line)

static const winograd_forms NAMED(forms) = {
    .four = {36, {1, 6, 1, NAMED(input_run)}, 1, NAMED(output), NAMED(filters)},
    .six = {64, {1, 8, 1, NAMED(six_input_run)}, 1, NAMED(six_output), NAMED(six_filters)},
    .stride2 =
        {81, {2, 9, 1, NAMED(strided_input_run)}, 1, NAMED(strided_output), NAMED(strided_filters)},
    .stride2_data = {81,
                     {1, 5, 0, NAMED(strided_data_run)},
                     2,
                     NAMED(strided_data_output),
                     NAMED(strided_filters)},
    .gradient_four = {36, {1, 6, 1, NAMED(input_run)}, {1, 4, 0, NAMED(gradient_run)}, NAMED(back)},
    .gradient_six = {64,
                     {1, 8, 1, NAMED(six_input_run)},
                     {1, 6, 0, NAMED(six_gradient_run)},
                     NAMED(six_back)},
    .gradient2 = {81,
                  {2, 9, 1, NAMED(strided_input_run)},
                  {1, 4, 0, NAMED(strided_gradient_run)},
                  NAMED(strided_back)},
};

#undef RUN
#undef OUTPUT
#undef FILTERS
#undef BACK
#undef TARGET
#undef NAMED
