#!/usr/bin/env python3
"""Writes tests/python/ml_models.zip: what skl2onnx and onnxmltools export, for test_onnx_ml.py.

usage: python tests/python/export_ml_models.py

Needs scikit-learn, skl2onnx, onnxmltools, xgboost and lightgbm, which no test needs:

    python3 -m venv /tmp/exporters
    /tmp/exporters/bin/pip install scikit-learn skl2onnx onnxmltools xgboost lightgbm
    /tmp/exporters/bin/python tests/python/export_ml_models.py

Every estimator is fitted on few rows of random data and exported with a symbolic batch.  A model's inputs tell
what it is to be fed with (inputs_of in test_onnx_ml.py)."""

import pathlib
import warnings
import zipfile

import lightgbm
import numpy as np
import onnxmltools
import skl2onnx
import xgboost
from onnxmltools.convert.common.data_types import FloatTensorType as OtherFloat
from skl2onnx.common import data_types as kinds
from sklearn import (
    calibration,
    cluster,
    compose,
    decomposition,
    ensemble,
    feature_extraction,
    feature_selection,
    impute,
)
from sklearn import (
    linear_model,
    mixture,
    multiclass,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)

HERE = pathlib.Path(__file__).resolve().parent
OPSETS = {"": 17, "ai.onnx.ml": 3}
FEATURES = 6

warnings.filterwarnings("ignore")
rng = np.random.default_rng(5)
X = rng.standard_normal((160, FEATURES)).astype(np.float32)
X_WITH_GAPS = np.where(rng.random(X.shape) < 0.2, np.nan, X).astype(np.float32)
SCORE = X[:, 0] + 0.7 * X[:, 1] - X[:, 2] * X[:, 3]
TWO = (SCORE > 0).astype(np.int64)
THREE = np.digitize(SCORE, [-0.7, 0.7]).astype(np.int64)
TWO_NAMES, THREE_NAMES = np.array(["no", "yes"])[TWO], np.array(["low", "mid", "high"])[THREE]
SEVERAL = np.stack([SCORE, X[:, 4] - SCORE, X[:, 5]], axis=1)
WORDS = np.array(["red", "green", "blue", "grey"], object)[rng.integers(0, 4, (160, 2))]

MODELS = {}


def add(name, estimator, y=None, x=X, kind=None, gaps=False, **options):
    """Fits, exports and keeps a model of scikit-learn's."""
    x = X_WITH_GAPS if gaps else x
    estimator.fit(x) if y is None else estimator.fit(x, y)
    kind = kind or kinds.FloatTensorType([None, x.shape[1]])
    inputs = kind if isinstance(kind, list) else [("x", kind)]
    made = skl2onnx.to_onnx(
        estimator, initial_types=inputs, target_opset=OPSETS, options={id(estimator): options} if options else None
    )
    MODELS[name] = made


def boosted(name, estimator, y, convert, gaps=False, **options):
    """The same of XGBoost's and LightGBM's."""
    estimator.fit(X_WITH_GAPS if gaps else X, y)
    MODELS[name] = convert(estimator, initial_types=[("x", OtherFloat([None, FEATURES]))], target_opset=15, **options)


def classifiers():
    few = {"n_estimators": 8, "max_depth": 4, "random_state": 0}
    for suffix, y in (("2", TWO), ("3", THREE), ("2_names", TWO_NAMES), ("3_names", THREE_NAMES)):
        add(f"decision_tree_classifier_{suffix}", tree.DecisionTreeClassifier(max_depth=6, random_state=0), y)
        add(f"random_forest_classifier_{suffix}", ensemble.RandomForestClassifier(**few), y)
        add(f"gradient_boosting_classifier_{suffix}", ensemble.GradientBoostingClassifier(**few), y)
        add(f"logistic_regression_{suffix}", linear_model.LogisticRegression(), y)
        add(f"svc_rbf_{suffix}", svm.SVC(random_state=0), y)
        boosted(
            f"xgboost_classifier_{suffix[:1]}",
            xgboost.XGBClassifier(n_estimators=8, max_depth=4),
            TWO if suffix[0] == "2" else THREE,
            onnxmltools.convert_xgboost,
        )
        boosted(
            f"lightgbm_classifier_{suffix}",
            lightgbm.LGBMClassifier(n_estimators=8, num_leaves=12, verbose=-1),
            y,
            onnxmltools.convert_lightgbm,
        )
    add("decision_tree_arrays", tree.DecisionTreeClassifier(max_depth=5, random_state=0), THREE, zipmap=False)
    add("random_forest_columns", ensemble.RandomForestClassifier(**few), THREE_NAMES, zipmap="columns")
    add("extra_trees_classifier", ensemble.ExtraTreesClassifier(**few), THREE)
    add(
        "bagging_classifier",
        ensemble.BaggingClassifier(tree.DecisionTreeClassifier(max_depth=3), n_estimators=4, random_state=0),
        THREE,
    )
    add("ada_boost_classifier", ensemble.AdaBoostClassifier(n_estimators=4, random_state=0), THREE)
    add(
        "voting_classifier",
        ensemble.VotingClassifier(
            [("a", linear_model.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=3))],
            voting="soft",
            flatten_transform=False,
        ),
        THREE,
    )
    add(
        "stacking_classifier",
        ensemble.StackingClassifier(
            [("a", linear_model.LogisticRegression()), ("b", tree.DecisionTreeClassifier(max_depth=3))], cv=2
        ),
        TWO,
    )
    add("svc_probability_2", svm.SVC(probability=True, random_state=0), TWO)
    add("svc_probability_3", svm.SVC(probability=True, random_state=0, kernel="poly"), THREE_NAMES)
    add("svc_linear", svm.SVC(kernel="linear"), THREE)
    add("svc_sigmoid", svm.SVC(kernel="sigmoid"), TWO)
    add("nu_svc", svm.NuSVC(probability=True, random_state=0), THREE)
    add("linear_svc", svm.LinearSVC(), THREE)
    add("sgd_classifier", linear_model.SGDClassifier(loss="log_loss", random_state=0), THREE)
    add("perceptron", linear_model.Perceptron(random_state=0), TWO)
    add("ridge_classifier", linear_model.RidgeClassifier(), THREE)
    add("gaussian_naive_bayes", naive_bayes.GaussianNB(), THREE)
    add("bernoulli_naive_bayes", naive_bayes.BernoulliNB(), TWO_NAMES)
    add("k_neighbors_classifier", neighbors.KNeighborsClassifier(), THREE)
    add("mlp_classifier", neural_network.MLPClassifier(hidden_layer_sizes=(12,), max_iter=40, random_state=0), THREE)
    add("one_vs_rest", multiclass.OneVsRestClassifier(linear_model.LogisticRegression()), THREE)
    add("calibrated", calibration.CalibratedClassifierCV(svm.LinearSVC(), cv=2), THREE)
    add(
        "logistic_regression_double",
        linear_model.LogisticRegression(),
        THREE,
        X.astype(np.float64),
        kinds.DoubleTensorType([None, FEATURES]),
        zipmap=False,
    )
    add(
        "random_forest_double",
        ensemble.RandomForestClassifier(**few),
        THREE,
        X.astype(np.float64),
        kinds.DoubleTensorType([None, FEATURES]),
    )
    add(
        "decision_tree_int64",
        tree.DecisionTreeClassifier(max_depth=5, random_state=0),
        THREE,
        (4 * X).astype(np.int64),
        kinds.Int64TensorType([None, FEATURES]),
    )
    boosted(
        "xgboost_classifier_gaps",
        xgboost.XGBClassifier(n_estimators=6, max_depth=4),
        TWO,
        onnxmltools.convert_xgboost,
        gaps=True,
    )
    boosted(
        "lightgbm_classifier_arrays",
        lightgbm.LGBMClassifier(n_estimators=6, num_leaves=12, verbose=-1),
        THREE,
        onnxmltools.convert_lightgbm,
        gaps=True,
        zipmap=False,
    )


def regressors():
    few = {"n_estimators": 8, "max_depth": 4, "random_state": 0}
    add("decision_tree_regressor", tree.DecisionTreeRegressor(max_depth=7, random_state=0), SCORE)
    add("decision_tree_regressor_several", tree.DecisionTreeRegressor(max_depth=5, random_state=0), SEVERAL)
    add("random_forest_regressor", ensemble.RandomForestRegressor(**few), SCORE)
    add("random_forest_regressor_several", ensemble.RandomForestRegressor(**few), SEVERAL)
    add("extra_trees_regressor", ensemble.ExtraTreesRegressor(**few), SCORE)
    add("gradient_boosting_regressor", ensemble.GradientBoostingRegressor(**few), SCORE)
    add("ada_boost_regressor", ensemble.AdaBoostRegressor(n_estimators=4, random_state=0), SCORE)
    add("isolation_forest", ensemble.IsolationForest(n_estimators=6, max_samples=32, random_state=0))
    add("linear_regression", linear_model.LinearRegression(), SCORE)
    add("linear_regression_several", linear_model.LinearRegression(), SEVERAL)
    add(
        "linear_regression_double",
        linear_model.LinearRegression(),
        SCORE,
        X.astype(np.float64),
        kinds.DoubleTensorType([None, FEATURES]),
    )
    add("ridge", linear_model.Ridge(), SEVERAL)
    add("lasso", linear_model.Lasso(0.05), SCORE)
    add("svr_rbf", svm.SVR(), SCORE)
    add("svr_poly", svm.SVR(kernel="poly", degree=2), SCORE)
    add("nu_svr", svm.NuSVR(kernel="sigmoid"), SCORE)
    add("one_class_svm", svm.OneClassSVM(nu=0.2))
    add("k_neighbors_regressor", neighbors.KNeighborsRegressor(), SCORE)
    add("mlp_regressor", neural_network.MLPRegressor(hidden_layer_sizes=(12,), max_iter=40, random_state=0), SCORE)
    boosted(
        "xgboost_regressor",
        xgboost.XGBRegressor(n_estimators=8, max_depth=5),
        SCORE,
        onnxmltools.convert_xgboost,
        gaps=True,
    )
    boosted(
        "lightgbm_regressor",
        lightgbm.LGBMRegressor(n_estimators=8, num_leaves=14, verbose=-1),
        SCORE,
        onnxmltools.convert_lightgbm,
        gaps=True,
    )
    boosted(
        "lightgbm_forest",
        lightgbm.LGBMRegressor(boosting_type="rf", n_estimators=8, bagging_freq=1, bagging_fraction=0.6, verbose=-1),
        SCORE,
        onnxmltools.convert_lightgbm,
    )


def transformers():
    words = kinds.StringTensorType([None, 2])
    add("standard_scaler", preprocessing.StandardScaler())
    add("min_max_scaler", preprocessing.MinMaxScaler((-1, 1), clip=True))
    add("max_abs_scaler", preprocessing.MaxAbsScaler())
    add("robust_scaler", preprocessing.RobustScaler())
    for norm in ("l1", "l2", "max"):
        add(f"normalizer_{norm}", preprocessing.Normalizer(norm))
    add("binarizer", preprocessing.Binarizer(threshold=0.3))
    add("imputer", impute.SimpleImputer(), gaps=True)
    add("polynomial_features", preprocessing.PolynomialFeatures(2))
    add("k_bins", preprocessing.KBinsDiscretizer(4, encode="onehot-dense"))
    add("power_transformer", preprocessing.PowerTransformer())
    add(
        "one_hot_strings",
        preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        x=WORDS,
        kind=words,
    )
    add("ordinal_strings", preprocessing.OrdinalEncoder(), x=WORDS, kind=words)
    add(
        "one_hot_ints",
        preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        x=(2 * X).astype(np.int64),
        kind=kinds.Int64TensorType([None, FEATURES]),
    )
    add("label_encoder", preprocessing.LabelEncoder(), x=WORDS[:, 0], kind=kinds.StringTensorType([None]))
    add("label_binarizer", preprocessing.LabelBinarizer(), x=THREE, kind=kinds.Int64TensorType([None]))
    add(
        "dict_vectorizer",
        feature_extraction.DictVectorizer(sparse=False),
        x=[{"red": 1.0, "blue": 2.0}, {"green": 3.0, "red": 0.5}],
        kind=kinds.DictionaryType(kinds.StringTensorType([None]), kinds.FloatTensorType([None])),
    )
    add("pca", decomposition.PCA(3, random_state=0))
    add("truncated_svd", decomposition.TruncatedSVD(3, random_state=0))
    add("k_means", cluster.KMeans(3, n_init=2, random_state=0))
    add("gaussian_mixture", mixture.GaussianMixture(3, random_state=0))
    add("select_k_best", feature_selection.SelectKBest(k=3), TWO)
    add("variance_threshold", feature_selection.VarianceThreshold(0.9))


def pipelines():
    scaled = [("scale", preprocessing.StandardScaler())]
    add(
        "pipeline_scaled_logistic",
        pipeline.Pipeline([*scaled, ("model", linear_model.LogisticRegression())]),
        THREE_NAMES,
    )
    add(
        "pipeline_imputed_forest",
        pipeline.Pipeline(
            [
                ("fill", impute.SimpleImputer(strategy="median")),
                ("model", ensemble.RandomForestClassifier(n_estimators=6, max_depth=4, random_state=0)),
            ]
        ),
        TWO_NAMES,
        gaps=True,
    )
    add(
        "pipeline_pca_svc",
        pipeline.Pipeline(
            [*scaled, ("pca", decomposition.PCA(3)), ("model", svm.SVC(probability=True, random_state=0))]
        ),
        THREE,
    )
    add(
        "pipeline_normalized_ridge",
        pipeline.Pipeline([("norm", preprocessing.Normalizer()), ("model", linear_model.Ridge())]),
        SCORE,
    )
    add(
        "feature_union",
        pipeline.Pipeline(
            [
                (
                    "both",
                    pipeline.FeatureUnion([("scale", preprocessing.StandardScaler()), ("pca", decomposition.PCA(2))]),
                ),
                ("model", linear_model.LinearRegression()),
            ]
        ),
        SCORE,
    )
    mixed_columns()


def mixed_columns():
    """A table with columns of numbers and of words."""
    numbers = pipeline.Pipeline([("fill", impute.SimpleImputer()), ("scale", preprocessing.StandardScaler())])
    columns = compose.ColumnTransformer(
        [
            ("numbers", numbers, list(range(FEATURES))),
            ("words", preprocessing.OneHotEncoder(handle_unknown="ignore"), [FEATURES, FEATURES + 1]),
        ]
    )
    model = pipeline.Pipeline(
        [
            ("columns", columns),
            ("model", ensemble.GradientBoostingClassifier(n_estimators=6, max_depth=3, random_state=0)),
        ]
    )
    model.fit(np.concatenate([X_WITH_GAPS.astype(object), WORDS], axis=1), THREE_NAMES)
    inputs = [("numbers", kinds.FloatTensorType([None, FEATURES])), ("words", kinds.StringTensorType([None, 2]))]
    MODELS["pipeline_mixed_columns"] = skl2onnx.to_onnx(model, initial_types=inputs, target_opset=OPSETS)


def main():
    for part in (classifiers, regressors, transformers, pipelines):
        part()
    with zipfile.ZipFile(HERE / "ml_models.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(MODELS):
            entry = zipfile.ZipInfo(f"{name}.onnx", (2000, 1, 1, 0, 0, 0))
            archive.writestr(entry, MODELS[name].SerializeToString(), zipfile.ZIP_DEFLATED)
    print(f"{len(MODELS)} models, {(HERE / 'ml_models.zip').stat().st_size} bytes")


if __name__ == "__main__":
    main()
