/* test_nn_recurrent.c: recurrent cells with their options; the numbers are ONNX Runtime's. */
#include "op/test_nn_golden.h"

static const float rnn_plain_out0[] = {
  0.297822833f, 0.204591036f, -0.0207489729f, -0.0380675793f, 0.188160658f,  -0.301378548f,
  0.338212013f, 0.494426489f, -0.127644658f,  -0.449634969f,  -0.516871691f, 0.358621597f,
  0.256804705f, 0.608990073f, -0.476493001f,  0.625535607f,   0.355971098f,  -0.401812732f,
};
static const float rnn_plain_out1[] = {
  0.256804705f, 0.608990073f, -0.476493001f, 0.625535607f, 0.355971098f, -0.401812732f,
};
static const double rnn_bidirectional_in4[] = {3, 1};
static const float rnn_bidirectional_out0[] = {
  0.0f,           0.0f,         0.298583984f,  0.0f,          0.0f,         0.0f, -0.278486848f, 0.208615184f,
  -0.0820149183f, 0.234333158f, 0.432437181f,  -0.266366959f, 0.0f,         0.0f, 0.0f,          0.0f,
  0.0f,           0.0f,         -0.342843592f, 0.16782701f,   0.102669358f, 0.0f, 0.0f,          0.0f,
  0.0f,           0.0f,         0.0f,          0.0f,          0.0f,         0.0f, 0.126755953f,  0.47563982f,
  -0.445836842f,  0.0f,         0.0f,          0.0f,
};
static const float rnn_bidirectional_out1[] = {
  0.0f,          0.0f,         0.0f,           0.0f,         0.0f,         0.0f,
  -0.278486848f, 0.208615184f, -0.0820149183f, 0.234333158f, 0.432437181f, -0.266366959f,
};
static const float rnn_leaky_out0[] = {
  -0.228755817f, -0.310984492f, -0.0744909644f, -0.301367193f, -0.27128908f, -0.15908204f,
};
static const float rnn_leaky_out1[] = {
  -0.228755817f,
  -0.310984492f,
  -0.0744909644f,
};
static const float lstm_plain_out0[] = {
  -0.141582549f, -0.12030565f,  -0.0454563759f, -0.0168723036f, 0.0390777253f,  -0.0168410297f,
  -0.344611913f, -0.202822849f, -0.0692034513f, 0.072100915f,   0.117393486f,   0.0531842113f,
  -0.450928122f, -0.225913152f, -0.0533707514f, -0.0350508839f, -0.0837590322f, -0.0384499244f,
};
static const float lstm_plain_out1[] = {
  -0.450928122f, -0.225913152f, -0.0533707514f, -0.0350508839f, -0.0837590322f, -0.0384499244f,
};
static const float lstm_plain_out2[] = {
  -0.92523241f, -0.513930619f, -0.165435836f, -0.0612832904f, -0.169445932f, -0.0817543417f,
};
static const double lstm_all_in4[] = {4, 2, 1};
static const float lstm_all_out0[] = {
  -0.196618721f,    -0.0357624106f,  0.0124403723f,  -0.107180536f, -0.196805984f, -0.0382123068f,
  -0.161766261f,    0.16883105f,     -0.409613341f,  0.169837281f,  0.0771626309f, 0.1239236f,
  -0.0633097962f,   -0.0152705843f,  -0.0224670675f, -0.044903595f, 0.0f,          0.0f,
  -0.13136135f,     0.227092892f,    -0.355411083f,  0.0343974642f, 0.0f,          0.0f,
  0.0263373144f,    -0.015961105f,   0.0f,           0.0f,          0.0f,          0.0f,
  -0.062692076f,    0.139668912f,    0.0f,           0.0f,          0.0f,          0.0f,
  -0.000543323695f, -0.00937136728f, 0.0f,           0.0f,          0.0f,          0.0f,
  0.102498092f,     0.183996648f,    0.0f,           0.0f,          0.0f,          0.0f,
};
static const float lstm_all_out1[] = {
  -0.000543323695f, -0.00937136728f, -0.0224670675f, -0.044903595f, -0.196805984f, -0.0382123068f,
  -0.161766261f,    0.16883105f,     -0.409613341f,  0.169837281f,  0.0771626309f, 0.1239236f,
};
static const float lstm_all_out2[] = {
  -0.00104955956f, -0.0340072401f, -0.0675383881f, -0.0964638144f, -0.39835012f, -0.0890012458f,
  -0.348192275f,   0.578772247f,   -0.771353841f,  0.511429727f,   0.232522324f, 0.443638563f,
};
static const float lstm_clip_out0[] = {
  -0.078408055f, 0.0012975022f, -0.0101828557f, -0.0211152695f, -0.0947670788f, -0.00646748161f,
};
static const float lstm_clip_out1[] = {
  -0.0947670788f,
  -0.00646748161f,
};
static const float lstm_clip_out2[] = {
  -0.214607164f,
  -0.0145623684f,
};
static const float lstm_forget_out0[] = {
  -0.078408055f, 0.000771720603f, -0.0226882063f, -0.00906833634f, -0.101126671f, -0.00667426642f,
};
static const float lstm_forget_out1[] = {
  -0.101126671f,
  -0.00667426642f,
};
static const float lstm_forget_out2[] = {
  -0.227992967f,
  -0.0150795393f,
};
static const float lstm_acts_out0[] = {
  -0.0403332226f,
  0.000142045668f,
  0.00497888587f,
  -0.000879659958f,
};
static const float lstm_acts_out1[] = {
  0.00497888587f,
  -0.000879659958f,
};
static const float lstm_acts_out2[] = {
  0.0155541515f,
  -0.00541251991f,
};
static const float gru_plain_out0[] = {
  -0.0900738612f, 0.0315785445f, 0.274924576f, 0.114448108f,   -0.0200945716f,  -0.0764804631f,
  -0.130524054f,  0.0631605461f, 0.589719951f, 0.10777726f,    -0.0517991036f,  -0.282011837f,
  -0.0722251758f, 0.0663815513f, 0.719601512f, -0.0423704833f, -0.00869058818f, 0.0280932635f,
};
static const float gru_plain_out1[] = {
  -0.0722251758f, 0.0663815513f, 0.719601512f, -0.0423704833f, -0.00869058818f, 0.0280932635f,
};
static const double gru_linear_in4[] = {2, 3};
static const float gru_linear_out0[] = {
  -0.0950327739f, 0.489897132f, -0.152432129f, 0.297686726f,  0.328703314f, 0.0535767563f,
  -0.183736593f,  0.422916442f, -0.509782434f, 0.171209008f,  0.358738333f, 0.0577105284f,
  0.0f,           0.0f,         0.0f,          -0.251543373f, 0.339653969f, 0.40626657f,
};
static const float gru_linear_out1[] = {
  -0.0950327739f, 0.489897132f, -0.152432129f, 0.297686726f, 0.328703314f, 0.0535767563f,
};
static const float gru_bidirectional_out0[] = {
  -0.509661019f, 0.131591663f, -0.610650301f, -0.272925913f, 0.0208873004f, 0.0989903063f,
  -0.524700463f, 0.928478897f, 0.758179545f,  -0.479284108f, 0.750873685f,  0.943438649f,
  -0.529500723f, 0.200629413f, -0.14965713f,  -0.219083101f, 0.028134156f,  -0.0991872177f,
  -0.514673114f, 0.884984493f, 0.6950261f,    -0.367394209f, 0.571837008f,  0.959843874f,
  -0.375959277f, 0.180233151f, 0.348946154f,  -0.386035383f, 0.114729688f,  0.169096559f,
  -0.547514319f, 0.725073695f, 0.66822964f,   -0.277403712f, 0.353861988f,  0.9410429f,
};
static const float gru_bidirectional_out1[] = {
  -0.375959277f, 0.180233151f, 0.348946154f, -0.386035383f, 0.114729688f, 0.169096559f,
  -0.524700463f, 0.928478897f, 0.758179545f, -0.479284108f, 0.750873685f, 0.943438649f,
};
static const float gru_acts_out0[] = {
  -0.52120465f,
  -0.323168516f,
  -0.48749274f,
  -0.456392974f,
};
static const float gru_acts_out1[] = {
  -0.48749274f,
  -0.456392974f,
};
static const float rnn_softplus_out0[] = {
  0.746500671f,
  0.226301134f,
  0.431646526f,
  0.397995532f,
};
static const float rnn_softplus_out1[] = {
  0.431646526f,
  0.397995532f,
};
static const float rnn_thresholded_out0[] = {
  0.0f,
  0.0f,
  0.0f,
  0.0f,
};
static const float rnn_thresholded_out1[] = {
  0.0f,
  0.0f,
};
static const float lstm_batch_first_out0[] = {
  -0.231495902f, -0.108209275f,  0.0732114241f, 0.0162677653f,  -0.092811808f,  -0.0918946788f,
  -0.071848087f, -0.0127562005f, -0.129158899f, -0.0598235764f, -0.0606326871f, 0.0199697129f,
  -0.247125387f, -0.0757455304f, 0.184778765f,  -0.0811952353f, -0.0932679847f, -0.0880748034f,
  0.260905713f,  -0.0138201909f, -0.112860009f, -0.0546533093f, 0.258024633f,   0.0282531343f,
};
static const float lstm_batch_first_out1[] = {
  -0.129158899f, -0.0598235764f, 0.0732114241f, 0.0162677653f,
  -0.112860009f, -0.0546533093f, 0.184778765f,  -0.0811952353f,
};
static const float lstm_batch_first_out2[] = {
  -0.299248755f, -0.0945654511f, 0.199618623f, 0.0356094688f,
  -0.246623948f, -0.0953277498f, 0.301641345f, -0.149934173f,
};

static const Golden golden[] = {
  {"rnn_plain",
   &op_nn_rnn,
   {"hidden_size", "3", "direction", "\"forward\"", "inputs", "[]", NULL},
   3,
   {{1, DT_FLOAT, 3, {3, 2, 2}, NULL}, {2, DT_FLOAT, 3, {1, 3, 2}, NULL}, {3, DT_FLOAT, 3, {1, 3, 3}, NULL}},
   2,
   {{4, {3, 1, 2, 3}, rnn_plain_out0}, {3, {1, 2, 3}, rnn_plain_out1}},
   3e-05f},
  {"rnn_bidirectional",
   &op_nn_rnn,
   {"hidden_size", "3", "direction", "\"bidirectional\"", "inputs", "[\"bias\", \"sequence_lens\", \"initial_h\"]",
    "activations", "[\"Relu\", \"Tanh\"]", NULL},
   6,
   {{1, DT_FLOAT, 3, {3, 2, 2}, NULL},
    {2, DT_FLOAT, 3, {2, 3, 2}, NULL},
    {3, DT_FLOAT, 3, {2, 3, 3}, NULL},
    {10, DT_FLOAT, 2, {2, 6}, NULL},
    {-32, DT_INT, 1, {2}, rnn_bidirectional_in4},
    {12, DT_FLOAT, 3, {2, 2, 3}, NULL}},
   2,
   {{4, {3, 2, 2, 3}, rnn_bidirectional_out0}, {3, {2, 2, 3}, rnn_bidirectional_out1}},
   3e-05f},
  {"rnn_leaky",
   &op_nn_rnn,
   {"hidden_size", "3", "direction", "\"reverse\"", "inputs", "[\"bias\"]", "activations", "[\"LeakyRelu\"]",
    "activation_alpha", "[0.2]", NULL},
   4,
   {{1, DT_FLOAT, 3, {2, 1, 2}, NULL},
    {2, DT_FLOAT, 3, {1, 3, 2}, NULL},
    {3, DT_FLOAT, 3, {1, 3, 3}, NULL},
    {10, DT_FLOAT, 2, {1, 6}, NULL}},
   2,
   {{4, {2, 1, 1, 3}, rnn_leaky_out0}, {3, {1, 1, 3}, rnn_leaky_out1}},
   3e-05f},
  {"lstm_plain",
   &op_nn_lstm,
   {"hidden_size", "3", "direction", "\"forward\"", "inputs", "[]", NULL},
   3,
   {{1, DT_FLOAT, 3, {3, 2, 2}, NULL}, {2, DT_FLOAT, 3, {1, 12, 2}, NULL}, {3, DT_FLOAT, 3, {1, 12, 3}, NULL}},
   3,
   {{4, {3, 1, 2, 3}, lstm_plain_out0}, {3, {1, 2, 3}, lstm_plain_out1}, {3, {1, 2, 3}, lstm_plain_out2}},
   3e-05f},
  {"lstm_all",
   &op_nn_lstm,
   {"hidden_size", "2", "direction", "\"bidirectional\"", "inputs",
    "[\"bias\", \"sequence_lens\", \"initial_h\", \"initial_c\", \"peephole\"]", NULL},
   8,
   {{1, DT_FLOAT, 3, {4, 3, 2}, NULL},
    {2, DT_FLOAT, 3, {2, 8, 2}, NULL},
    {3, DT_FLOAT, 3, {2, 8, 2}, NULL},
    {10, DT_FLOAT, 2, {2, 16}, NULL},
    {-32, DT_INT, 1, {3}, lstm_all_in4},
    {12, DT_FLOAT, 3, {2, 3, 2}, NULL},
    {13, DT_FLOAT, 3, {2, 3, 2}, NULL},
    {14, DT_FLOAT, 2, {2, 6}, NULL}},
   3,
   {{4, {4, 2, 3, 2}, lstm_all_out0}, {3, {2, 3, 2}, lstm_all_out1}, {3, {2, 3, 2}, lstm_all_out2}},
   3e-05f},
  {"lstm_clip",
   &op_nn_lstm,
   {"hidden_size", "2", "direction", "\"forward\"", "inputs", "[\"bias\"]", "clip", "0.4", NULL},
   4,
   {{1, DT_FLOAT, 3, {3, 1, 2}, NULL},
    {2, DT_FLOAT, 3, {1, 8, 2}, NULL},
    {3, DT_FLOAT, 3, {1, 8, 2}, NULL},
    {10, DT_FLOAT, 2, {1, 16}, NULL}},
   3,
   {{4, {3, 1, 1, 2}, lstm_clip_out0}, {3, {1, 1, 2}, lstm_clip_out1}, {3, {1, 1, 2}, lstm_clip_out2}},
   3e-05f},
  {"lstm_forget",
   &op_nn_lstm,
   {"hidden_size", "2", "direction", "\"forward\"", "inputs", "[\"bias\"]", "input_forget", "True", NULL},
   4,
   {{1, DT_FLOAT, 3, {3, 1, 2}, NULL},
    {2, DT_FLOAT, 3, {1, 8, 2}, NULL},
    {3, DT_FLOAT, 3, {1, 8, 2}, NULL},
    {10, DT_FLOAT, 2, {1, 16}, NULL}},
   3,
   {{4, {3, 1, 1, 2}, lstm_forget_out0}, {3, {1, 1, 2}, lstm_forget_out1}, {3, {1, 1, 2}, lstm_forget_out2}},
   3e-05f},
  {"lstm_acts",
   &op_nn_lstm,
   {"hidden_size", "2", "direction", "\"forward\"", "inputs", "[\"bias\"]", "activations",
    "[\"HardSigmoid\", \"Softsign\", \"ScaledTanh\"]", "activation_alpha", "[0.3, 1.5]", "activation_beta",
    "[0.4, 0.7]", NULL},
   4,
   {{1, DT_FLOAT, 3, {2, 1, 2}, NULL},
    {2, DT_FLOAT, 3, {1, 8, 2}, NULL},
    {3, DT_FLOAT, 3, {1, 8, 2}, NULL},
    {10, DT_FLOAT, 2, {1, 16}, NULL}},
   3,
   {{4, {2, 1, 1, 2}, lstm_acts_out0}, {3, {1, 1, 2}, lstm_acts_out1}, {3, {1, 1, 2}, lstm_acts_out2}},
   3e-05f},
  {"gru_plain",
   &op_nn_gru,
   {"hidden_size", "3", "direction", "\"forward\"", "inputs", "[]", NULL},
   3,
   {{1, DT_FLOAT, 3, {3, 2, 2}, NULL}, {2, DT_FLOAT, 3, {1, 9, 2}, NULL}, {3, DT_FLOAT, 3, {1, 9, 3}, NULL}},
   2,
   {{4, {3, 1, 2, 3}, gru_plain_out0}, {3, {1, 2, 3}, gru_plain_out1}},
   3e-05f},
  {"gru_linear",
   &op_nn_gru,
   {"hidden_size", "3", "direction", "\"reverse\"", "inputs", "[\"bias\", \"sequence_lens\", \"initial_h\"]",
    "linear_before_reset", "True", NULL},
   6,
   {{1, DT_FLOAT, 3, {3, 2, 2}, NULL},
    {2, DT_FLOAT, 3, {1, 9, 2}, NULL},
    {3, DT_FLOAT, 3, {1, 9, 3}, NULL},
    {10, DT_FLOAT, 2, {1, 18}, NULL},
    {-32, DT_INT, 1, {2}, gru_linear_in4},
    {12, DT_FLOAT, 3, {1, 2, 3}, NULL}},
   2,
   {{4, {3, 1, 2, 3}, gru_linear_out0}, {3, {1, 2, 3}, gru_linear_out1}},
   3e-05f},
  {"gru_bidirectional",
   &op_nn_gru,
   {"hidden_size", "3", "direction", "\"bidirectional\"", "inputs", "[\"bias\", \"initial_h\"]", NULL},
   5,
   {{1, DT_FLOAT, 3, {3, 2, 2}, NULL},
    {2, DT_FLOAT, 3, {2, 9, 2}, NULL},
    {3, DT_FLOAT, 3, {2, 9, 3}, NULL},
    {10, DT_FLOAT, 2, {2, 18}, NULL},
    {12, DT_FLOAT, 3, {2, 2, 3}, NULL}},
   2,
   {{4, {3, 2, 2, 3}, gru_bidirectional_out0}, {3, {2, 2, 3}, gru_bidirectional_out1}},
   3e-05f},
  {"gru_acts",
   &op_nn_gru,
   {"hidden_size", "2", "direction", "\"forward\"", "inputs", "[\"bias\"]", "activations", "[\"Affine\", \"Elu\"]",
    "activation_alpha", "[0.4, 0.8]", "activation_beta", "[0.1]", NULL},
   4,
   {{1, DT_FLOAT, 3, {2, 1, 2}, NULL},
    {2, DT_FLOAT, 3, {1, 6, 2}, NULL},
    {3, DT_FLOAT, 3, {1, 6, 2}, NULL},
    {10, DT_FLOAT, 2, {1, 12}, NULL}},
   2,
   {{4, {2, 1, 1, 2}, gru_acts_out0}, {3, {1, 1, 2}, gru_acts_out1}},
   3e-05f},
  {"rnn_softplus",
   &op_nn_rnn,
   {"hidden_size", "2", "direction", "\"forward\"", "inputs", "[\"bias\"]", "activations", "[\"Softplus\"]", NULL},
   4,
   {{1, DT_FLOAT, 3, {2, 1, 2}, NULL},
    {2, DT_FLOAT, 3, {1, 2, 2}, NULL},
    {3, DT_FLOAT, 3, {1, 2, 2}, NULL},
    {10, DT_FLOAT, 2, {1, 4}, NULL}},
   2,
   {{4, {2, 1, 1, 2}, rnn_softplus_out0}, {3, {1, 1, 2}, rnn_softplus_out1}},
   3e-05f},
  {"rnn_thresholded",
   &op_nn_rnn,
   {"hidden_size", "2", "direction", "\"forward\"", "inputs", "[\"bias\"]", "activations", "[\"ThresholdedRelu\"]",
    "activation_alpha", "[0.3]", NULL},
   4,
   {{1, DT_FLOAT, 3, {2, 1, 2}, NULL},
    {2, DT_FLOAT, 3, {1, 2, 2}, NULL},
    {3, DT_FLOAT, 3, {1, 2, 2}, NULL},
    {10, DT_FLOAT, 2, {1, 4}, NULL}},
   2,
   {{4, {2, 1, 1, 2}, rnn_thresholded_out0}, {3, {1, 1, 2}, rnn_thresholded_out1}},
   3e-05f},
  {"lstm_batch_first",
   &op_nn_lstm,
   {"hidden_size", "2", "direction", "\"bidirectional\"", "layout", "1", "inputs", "[\"initial_h\", \"initial_c\"]",
    NULL},
   5,
   {{1, DT_FLOAT, 3, {2, 3, 2}, NULL},
    {2, DT_FLOAT, 3, {2, 8, 2}, NULL},
    {3, DT_FLOAT, 3, {2, 8, 2}, NULL},
    {12, DT_FLOAT, 3, {2, 2, 2}, NULL},
    {13, DT_FLOAT, 3, {2, 2, 2}, NULL}},
   3,
   {{4, {2, 3, 2, 2}, lstm_batch_first_out0},
    {3, {2, 2, 2}, lstm_batch_first_out1},
    {3, {2, 2, 2}, lstm_batch_first_out2}},
   3e-05f},
};

GOLDEN_MAIN(golden)
