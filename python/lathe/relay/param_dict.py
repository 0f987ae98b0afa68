"""Parameters as bytes, by the name of TVM's file for them."""

from ..runtime.params import load_param_dict, save_param_dict

__all__ = ["load_param_dict", "save_param_dict"]
